"""Cut off: whether ranks that were lost may only be out of reach, and train on without this side.

Of a process on a host with ranks that are left MPI knows the end. Where all ranks of a host are lost, the host may have
ended, or the network between. Then each side sees the other as lost, and only one may go on and write files: the side
with more ranks, and of two equal sides the one with the root.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def is_cut_off(hosts: Sequence[str], lost: Collection[int], root: int = 0) -> bool:
    """Return whether the ranks that are left must not go on; `hosts` are those of all ranks before, by rank."""
    near = {host for rank, host in enumerate(hosts) if rank not in lost}
    far = [rank for rank in lost if hosts[rank] not in near]
    left = len(hosts) - len(lost)
    return len(far) > left or (len(far) == left and root in far)
