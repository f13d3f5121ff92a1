"""Execution: plans that run collectives over MPI, by schedules, in the memory of a node, and on devices."""
