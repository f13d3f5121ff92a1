"""Devices: what a rank computes on, and with how many threads."""
