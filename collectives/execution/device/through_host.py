"""Inside a node through pinned host memory: what NCCL or mapped memory does where GPUs may wait for other processes.

Sums and copies to all are rings of ours, whose chunks pass through pinned slots; what goes to or comes from the root's
node is the MPI library's, on copies. A lost rank ends all of it, as it ends any schedule between nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from collectives.execution.device.plans import DeviceLibraryPlan, Parts
from collectives.execution.device.transports import StagedTransport
from collectives.execution.library import LibraryPlan
from collectives.execution.node import Requests
from collectives.execution.operations import Operation
from collectives.execution.plans import Array, Plan, SchedulePlan
from collectives.schedules.algorithms import make_schedule
from collectives.verbs import VERBS, Slice, bounds_of

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.device.device import Device

RING = "ring"


class RangesPlan(Plan):
    """One plan after the other, each over a range of the vector, and over this rank's elements of that range.

    `ranges` has these two slices, of the vector and of this rank's part, with the plan. `brings`: whether the part is
    what the rank sends; else it is what the rank gets.
    """

    def __init__(self, ranges: Sequence[tuple[slice, slice, Plan]], brings: bool):
        self.ranges, self.brings = ranges, brings

    def bind(self, send: np.ndarray, recv: Array) -> None:
        """Bind the ranges of the arrays."""
        super().bind(send, recv)
        assert recv is not None
        for whole, own, plan in self.ranges:
            given, got = (own, whole) if self.brings else (whole, own)
            plan.bind(send[given], recv[got])

    def steps(self, wait: bool) -> Requests:
        """Take the steps of each plan."""
        for _, _, plan in self.ranges:
            yield from plan.steps(wait)

    def under_way(self) -> Requests:
        """Iterate over the requests of all plans."""
        for _, _, plan in self.ranges:
            yield from plan.under_way()

    def drain(self) -> None:
        """Drain all plans."""
        for _, _, plan in self.ranges:
            plan.drain()
        super().drain()

    def mark(self) -> None:
        """Mark the calling thread's stream for each plan."""
        for _, _, plan in self.ranges:
            plan.mark()

    def follow(self) -> None:
        """Make the calling thread's stream wait for all plans."""
        for _, _, plan in self.ranges:
            plan.follow()

    def free(self) -> None:
        """Free the plans."""
        for _, _, plan in self.ranges:
            plan.free()


def is_consecutive(parts: Parts) -> bool:
    """Return whether the k-th parts of a node's ranks follow one another, for each k, so that a plan can have them."""
    return all(one[1] == other[0] for each in zip(*parts, strict=True) for one, other in pairwise(each))


def through_host(
    local: MPI.Intracomm,
    device: Device,
    what: str,
    op: Operation | None,
    root: int,
    parts: Parts,
    dtype: np.dtype,
    chunk: int,
) -> Plan:
    """Return a plan over the ranks of a node, with their consecutive `parts` of a vector, in chunks of elements."""

    def plan(blocks: Sequence[Slice]) -> Plan:
        counts = tuple(stop - start for start, stop in blocks)
        if not VERBS[what].is_scheduled:
            library = LibraryPlan(local, what, op, root, dtype, bounds_of(counts))
            return DeviceLibraryPlan(library, StagedTransport(device), direct=False)
        schedule = make_schedule(what, RING, local.size, sum(counts), chunk=chunk, counts=counts)
        return SchedulePlan(schedule, local, op, StagedTransport(device))

    by_range = [*zip(*parts, strict=True)]
    if len(by_range) == 1:
        return plan(by_range[0])
    mine = [blocks[local.rank] for blocks in by_range]
    starts = accumulate((stop - start for start, stop in mine), initial=0)
    ranges = [
        (slice(blocks[0][0], blocks[-1][1]), slice(at, end), plan(blocks))
        for blocks, (at, end) in zip(by_range, pairwise(starts), strict=True)
    ]
    return RangesPlan(ranges, brings=not VERBS[what].joins)
