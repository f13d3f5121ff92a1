"""Simulation: the executions of all ranks in one process, without MPI, to prove, count and time schedules."""
