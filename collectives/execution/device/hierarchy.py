"""Hierarchy: device arrays over nodes, each GPU carrying its part between the nodes, over its own adapter.

The ranks of a node join their parts of all contributions (a reduce-scatter). Ranks with the same number on their nodes
exchange that part, which stays on their devices, by a schedule. Then the ranks of a node put their parts together (an
allgather). Inside nodes NCCL does it where every rank has its own GPU; otherwise the ranks read each other's mapped
memory. Where a rank may be lost, both go through pinned host memory instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.agreement import end_job
from collectives.errors import CollectiveError, RankLostError
from collectives.execution.node import Requests
from collectives.execution.operations import Operation
from collectives.execution.plans import Plan, part_of
from collectives.verbs import Slice

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.device.device import Device


class HierarchyPlan(Plan):
    """A plan inside the node that joins or cuts, one between the nodes, and one inside the node that puts together.

    - `comm`: all ranks.
    - `into`, `out`: the node's plans, or None where the collective has no such part on this node.
    - `between`: the plan of this rank's part over the ranks with its number on their nodes.
    - `slices`: where the elements of that part lie in the vector.
    - `block`: this rank's block where the collective is of blocks: it gets, or brings, no more.
    - `has_sum`: whether this rank gets its part of the sum; `has_result`: whether it gets the whole vector.
    - `ranks`: the number of ranks on all nodes.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        device: Device,
        into: Plan | None,
        between: Plan,
        out: Plan | None,
        op: Operation | None,
        slices: Sequence[Slice],
        ranks: int,
        block: Slice | None = None,
        has_sum: bool = True,
        has_result: bool = True,
    ):
        self.comm, self.device, self.op, self.slices, self.ranks = comm, device, op, slices, ranks
        self.elements, self.block = sum(stop - start for start, stop in slices), block
        self.parts = [part for part in (into, between, out) if part is not None]
        self.into, self.between, self.out = into, between, out
        self.has_sum, self.has_result = has_sum, has_result
        self._stream, self._given, self._last = device.stream(), device.event(), device.event()
        self._slice: Any = None
        self._sum: Any = None  # this rank's part of the result

    def bind(self, send: Any, recv: Any) -> None:
        """Bind the arrays to the parts."""
        super().bind(send, recv)
        result = send if recv is None else recv
        if self._slice is None or self._slice.dtype != send.dtype:
            self._slice = self.device.empty((self.elements,), send.dtype)
        given = got = self._slice
        if self.block and self.into is None:
            given = part_of(send, *self.block)
        if self.block and self.out is None:
            got = part_of(result, *self.block)
        self._sum = got
        if self.into is not None:
            self.into.bind(send, given)
        broadcasts = self.op is None and not self.block
        self.between.bind(given, None if broadcasts or not self.has_sum else got)
        if self.out is not None:
            self.out.bind(got, result if self.has_result else None)

    def give_lost(self, vector: np.ndarray) -> None:
        """Add what the messages between nodes have lost of this rank's part."""
        lost, at = np.zeros(self.elements, vector.dtype), 0
        self.between.give_lost(lost)
        for start, stop in self.slices:
            vector[start:stop] += lost[at : at + stop - start]
            at += stop - start

    def steps(self, wait: bool) -> Requests:
        """Do the parts in order, on one stream."""
        with self._stream:
            self._stream.wait_event(self._given)
            self.parts[0].mark()
        for part, following in zip(self.parts, [*self.parts[1:], None], strict=True):
            yield from part.steps(wait) if part is self.between else self._in_node(part, wait)
            with self._stream:
                part.follow()
                if part is self.between and self.op and self.op.divided and self.has_sum:
                    self.device.divide(self._sum, self.ranks, self._stream)
                if following is not None:
                    following.mark()
        self._last.record(self._stream)

    def _in_node(self, part: Plan, wait: bool) -> Requests:
        """Do a part. An error, which this node's ranks alone have, ends the job."""
        try:
            yield from part.steps(wait)
        except RankLostError:
            raise  # the others have it too
        except CollectiveError as error:
            end_job(self.comm, str(error))

    def under_way(self) -> Requests:
        """Iterate over the requests of all parts."""
        for part in self.parts:
            yield from part.under_way()

    def drain(self) -> None:
        """Drain the parts first: they begin no more messages."""
        for part in self.parts:
            part.drain()
        super().drain()

    def mark(self) -> None:
        """Mark the calling thread's stream."""
        self._given.record(self.device.current())

    def follow(self) -> None:
        """Make the calling thread's stream wait for the last part."""
        self.device.current().wait_event(self._last)

    def free(self) -> None:
        """Free the parts, after their work."""
        for part in self.parts:
            part.free()
        self._last.Wait()
