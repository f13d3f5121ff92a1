"""Simulation: the executions of all ranks in one process, without MPI; proves, counts and times schedules."""
