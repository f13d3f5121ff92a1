"""Timelines: what each rank did when, written to a file, read, drawn and advised on."""
