"""Simulation of instances on a machine with more cores than this one, from one core's layer times.

- `machine`: the cores, and the memory bandwidth that the cores of a domain share.
- `layers`: what each layer costs, and how long an instance's cores take for it.
- `events`: programs of loads that share bandwidth, event by event.
- `training`: the program of an instance: forward, backward, gather, update.
- `predict`: the throughput of each division of the cores into instances.
- `report`, `picture`: the results as text and as a plot.
"""
