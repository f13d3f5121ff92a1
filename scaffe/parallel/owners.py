"""Owners: which rank sums, updates and gives out the parameters of a bucket, and has the update rule's history of them.

- `root`: the root, for all buckets (S-Caffe, section 4).
- `spread`: bucket i belongs to rank i mod P. Its gradients are reduced to that rank, which broadcasts its parameters.
- `slices`: each rank owns a slice of each bucket. Gradients are summed by a reduce-scatter, which leaves each rank the
  sums of its slice; an allgather gives out the parameters (the state is divided as in ZeRO's first stage, Rajbhandari
  et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from collectives.communicator import Communicator
from scaffe.parallel.buckets import LINE, Bucket

ROOT, SPREAD, SLICES = "root", "spread", "slices"
OWNERS = {ROOT: "reduce", SPREAD: "reduce", SLICES: "reduce_scatter"}  # with the collective that sums gradients
GIVES = {"reduce": "bcast", "reduce_scatter": "allgather"}  # with the sums' collective, that of the parameters


def owned(buckets: Sequence[Bucket], owners: str, size: int) -> list[Bucket]:
    """Return the buckets with their owners among `size` ranks."""
    if owners == SPREAD:
        return [replace(bucket, owner=k % size) for k, bucket in enumerate(buckets)]
    if owners == SLICES:
        return [replace(bucket, counts=slice_counts(bucket.part.stop - bucket.part.start, size)) for bucket in buckets]
    return [*buckets]


def slice_counts(elements: int, size: int) -> tuple[int, ...]:
    """Return the elements of each rank's slice: nearly equal, whole lines of 64 bytes but for the end."""
    lines = -(-elements // LINE)
    bounds = [min(elements, lines * rank // size * LINE) for rank in range(size + 1)]
    return tuple(stop - start for start, stop in zip(bounds, bounds[1:], strict=False))


def are_shared(buckets: Sequence[Bucket]) -> bool:
    """Return whether other ranks than the root own any."""
    return any(bucket.is_shared for bucket in buckets)


def ranges(buckets: Sequence[Bucket], rank: int) -> list[slice]:
    """Return the ranges of the packed arrays that a rank owns, ascending."""
    return sorted((part for bucket in buckets for part in bucket.mine(rank)), key=lambda part: part.start)


def give_out(comm: Communicator, array: Any, bucket: Bucket, **how: Any) -> None:
    """Give all ranks a bucket's elements, of which each has its own in `array`. Collective."""
    give = partial(comm.allgather, counts=bucket.counts) if bucket.counts else partial(comm.bcast, root=bucket.owner)
    give(array, **how)
