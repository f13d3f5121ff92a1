"""Schedules: what each rank sends, receives and adds, as data; their algorithms, and the proof that they are right."""
