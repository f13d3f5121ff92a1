"""Scatter: one reader for all ranks, which sends each rank its rows of a batch.

This is the design that S-Caffe's parallel readers replace (section 4.1), kept for comparison. The root reads and
transforms whole global batches in advance, and the ranks wait for their rows at the start of each pass.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any

from readers import Batch
from scaffe.monitor.record import RANKS
from scaffe.parallel.world import World


def scatter(world: World, whole: Batch | None, mine: Batch) -> None:
    """Fill each rank's batch `mine` with its rows of the root's batch `whole`, in order of ranks. Collective.

    Other ranks than the root give None for `whole`. Called by the thread that calls MPI, while no layer computes.
    """
    from mpi4py import MPI

    with world.record.waiting(RANKS):
        rows = world.comm.gather(len(mine.arrays[0]), world.root)
        mine.number, mine.keys = world.comm.scatter(_labels(whole, rows) if whole and rows else None, world.root)
        for k, array in enumerate(mine.arrays):
            row = MPI.FLOAT.Create_contiguous(prod(array.shape[1:])).Commit()
            given = [whole.arrays[k], rows, row] if whole else None
            world.comm.Scatterv(given, [array, len(array), row], world.root)
            row.Free()
    mine.seconds, mine.read_until = (whole.seconds, whole.read_until) if whole else ((0.0, 0.0, 0.0), 0.0)


def _labels(whole: Batch, rows: list[int]) -> list[tuple[int, list[Any]]]:
    """Return for each rank the batch's number and the keys of its records."""
    stops = accumulate(rows)
    return [(whole.number, whole.keys[stop - n : stop]) for stop, n in zip(stops, rows, strict=True)]
