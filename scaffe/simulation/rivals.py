"""Rivals: what an allreduce takes by methods that are not scaffe's, by public models of them.

- NCCL's ring: all rings of a node together send at the rate of its adapters, and each of 2 (P - 1) steps has a latency
  (nccl-tests, doc/PERFORMANCE.md: 2 (P - 1) / P of the bytes cross each rank's port).
- NCCL's double binary trees: each node sends and receives all bytes once up and once down, which its adapters carry at
  once; the latency grows with log2 of the nodes (Jeaugey, Massively Scale Your Deep Learning Training with NCCL 2.4).
- Reduction in the network (SHARP): switches add, so that a node's adapters send all bytes once and receive them once
  (Graham et al., SHARP Streaming-Aggregation Hardware Design and Evaluation, ISC 2020); the latency is that of the way
  up and down. Within a node a ring sums first, and spreads the sums.

All are lower bounds: no chunk is waited for, and no addition takes time. NCCL's protocols for short messages are not
modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil, log2

from collectives.model.clusters import Cluster


def _shape(links: Cluster, ranks: int) -> tuple[int, int, float]:
    """Return the ranks of a node, the nodes, and the seconds of a byte through all adapters of a node."""
    inside = min(ranks, links.ranks_per_node)
    return inside, ceil(ranks / inside), links.beta / min(links.nics, inside)


def ring(links: Cluster, ranks: int, nbytes: float) -> float:
    """Return the seconds of NCCL's ring."""
    inside, nodes, beta = _shape(links, ranks)
    slowest = max(links.beta_in, beta) if nodes > 1 else links.beta_in
    alphas = (nodes * links.alpha + (ranks - nodes) * links.alpha_in) if nodes > 1 else ranks * links.alpha_in
    return 2 * (ranks - 1) / ranks * (alphas + nbytes * slowest)


def tree(links: Cluster, ranks: int, nbytes: float) -> float:
    """Return the seconds of NCCL's double binary trees, chains within nodes."""
    inside, nodes, beta = _shape(links, ranks)
    hops = 2 * (ceil(log2(nodes)) * links.alpha + (inside - 1) * links.alpha_in)
    return hops + 2 * nbytes * max(beta if nodes > 1 else 0.0, links.beta_in if inside > 1 else 0.0)


def in_network(links: Cluster, ranks: int, nbytes: float) -> float:
    """Return the seconds of a reduction in the switches, after a ring within nodes and before another."""
    inside, nodes, beta = _shape(links, ranks)
    within = 2 * (inside - 1) * (links.alpha_in + nbytes / inside * links.beta_in)
    return within + (2 * links.alpha + nbytes * beta if nodes > 1 else 0.0)


RIVALS: Mapping[str, Callable[[Cluster, int, float], float]] = {
    "NCCL, ring": ring,
    "NCCL, double binary trees": tree,
    "in the network (SHARP)": in_network,
}


def lines(links: Cluster, ranks: int, nbytes: float) -> Iterator[str]:
    """Yield a line for each rival: the milliseconds of an allreduce of all gradients at once."""
    for name, seconds in RIVALS.items():
        least = f"{1e3 * seconds(links, ranks, nbytes):.4g} ms"
        yield f"Rival: an allreduce of {nbytes:.0f} bytes by {name} takes at least {least}"
