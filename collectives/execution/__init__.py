"""Execution: plans that run collectives over MPI, by schedules, in a node's shared memory and on devices."""
