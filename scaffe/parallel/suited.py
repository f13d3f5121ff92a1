"""Suited: the bytes of a bucket that suit the algorithm and the chunks that a run gives, by the algorithm's cost."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.model.clusters import Cluster
from collectives.schedules.algorithms import LEADERS, OTHERS, with_chain_size
from collectives.schedules.registry import CollectiveTime, find
from collectives.staged import LANES
from scaffe.parallel.buckets import FIRST, SMALLEST
from scaffe.parallel.run import Run


def suited_to(run: Run, total: int, links: Cluster, ranks: int, chunks: Sequence[int]) -> int | None:
    """Return the bytes of a bucket that keep least of `total` bytes exposed; None where a cost has no closed form.

    So it is with "auto" and "mpi". The sums of all buckets are exposed, of which LANES run at a time and the busiest
    rank sends one, and the last sum, which nothing hides: that of the first bucket, 1 / FIRST as long as the others.
    Messages have the run's `chunk_bytes`, or the best of `chunks`.
    """
    name, chunks = with_chain_size(run.reduce, run.chain_size or None), [run.chunk_bytes] if run.chunk_bytes else chunks
    slices = 1
    if name.startswith(LEADERS):  # each rank of a node carries its slice between the nodes
        slices = min(ranks, links.ranks_per_node)
        name, ranks, links = name.removeprefix(LEADERS), -(-ranks // slices), links.of_nodes(slices)
    if name in OTHERS or ranks == 1:
        return None

    def cost(nbytes: int) -> CollectiveTime:
        sent = max(1, nbytes // slices)
        return min(filter(None, (_cost(run, name, links, ranks, sent, chunk) for chunk in chunks)))

    def exposed(nbytes: int) -> float:
        one, last = cost(nbytes), cost(nbytes // FIRST)
        return total / nbytes * max(one.busy, one.seconds / LANES) + last.seconds

    if _cost(run, name, links, ranks, total, chunks[0]) is None:
        return None
    sizes = [SMALLEST << k for k in range(max(0, (total // SMALLEST).bit_length()))]
    return min([*(size for size in sizes if size < total), total], key=exposed)


def _cost(run: Run, name: str, links: Cluster, ranks: int, nbytes: int, chunk: int) -> CollectiveTime | None:
    """Return the closed form of a sum's time in chunks of at most so many bytes, if there is one."""
    return find(name, run.collective).cost(run.collective, name, links, ranks, nbytes, min(chunk, nbytes))
