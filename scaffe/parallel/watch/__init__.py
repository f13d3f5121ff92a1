"""The watch over a job's ranks: one thread a rank, its probes, and the policy that says what follows.

- `watch.py`: the thread. Its probes look in turn, one after the other.
- `heartbeats.py`: a probe: the ranks' records, in memory that a node's ranks share, and by datagrams (`datagrams.py`).
  It finds ranks that wait for long, and those that they wait for (`report.py`), and ranks that hang (`hanging.py`).
- `process_table.py`: a probe: /proc, and MPI's group of failed processes. It finds processes that are stopped, or that
  have ended without MPI's report.
- `policy.py`: a line, the job's end, or a process's.
- `start.py`: the launcher's watch over the start of the ranks.
"""
