"""The papers' equations for the time of a collective, as printed: S-Caffe's 1 and 2, swCaffe's 2 to 6.

Times are in seconds; n, where it stands for data, is in bytes; logarithms have base 2.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2


def binomial_time(ranks: int, t_buffer: float) -> float:
    """Return S-Caffe's equation 1: log2 P rounds of `t_buffer`, the time to reduce the buffer between two ranks."""
    return ceil(log2(ranks)) * t_buffer


def chain_time(ranks: int, chunks: int, t_chunk: float) -> float:
    """Return S-Caffe's equation 2: n + P - 2 rounds of `t_chunk`, the time to reduce one of n chunks."""
    return (chunks + ranks - 2) * t_chunk


def chain_binomial_time(ranks: int, chain_size: int, chunks: int, t_buffer: float, t_chunk: float) -> float:
    """Return the time of S-Caffe's section 5: chains of `chain_size`, then a binomial tree of their first ranks."""
    return chain_time(chain_size, chunks, t_chunk) + binomial_time(ceil(ranks / chain_size), t_buffer)


def reduce_scatter_time(
    p: int, q: int, n: float, alpha: float, beta1: float, beta2: float, gamma: float = 0.0
) -> float:
    """Return swCaffe's equation 3: recursive halving over p nodes in supernodes of q, numbered one after another.

    beta1 is the seconds of a byte within a supernode, beta2 across supernodes. The paper's text has beta1 / 4 for beta2
    and means a quarter of the bandwidth, 4 beta1: see its figure 6.
    """
    return log2(p) * alpha + (q - 1) * beta1 * n / p + (p - q) * beta2 * n / p + (p - 1) / p * n * gamma


def allgather_time(p: int, q: int, n: float, alpha: float, beta1: float, beta2: float) -> float:
    """Return swCaffe's equation 4: recursive doubling."""
    return reduce_scatter_time(p, q, n, alpha, beta1, beta2)


def new_reduce_scatter_time(
    p: int, q: int, n: float, alpha: float, beta1: float, beta2: float, gamma: float = 0.0
) -> float:
    """Return swCaffe's equation 5: recursive halving over nodes numbered round-robin over the supernodes."""
    inside, across = p - p // q, p // q - 1
    return log2(p) * alpha + inside * beta1 * n / p + across * beta2 * n / p + (p - 1) / p * n * gamma


def new_allgather_time(p: int, q: int, n: float, alpha: float, beta1: float, beta2: float) -> float:
    """Return swCaffe's equation 6: recursive doubling over nodes numbered round-robin over the supernodes."""
    return new_reduce_scatter_time(p, q, n, alpha, beta1, beta2)


def allreduce_time(
    scatter: Callable[..., float], gather: Callable[..., float], *, gamma: float = 0.0, **terms: float
) -> float:
    """Return swCaffe's equation 2: the sum of a reduce-scatter (equation 3 or 5) and an allgather (4 or 6)."""
    return scatter(gamma=gamma, **terms) + gather(**terms)
