"""Schedules: what each rank sends, receives and adds, as data, and one algorithm a file."""
