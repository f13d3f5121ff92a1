"""Hierarchy: device arrays over nodes, between the GPUs of each node first, then between nodes by a schedule.

The ranks of a node reduce to one of them, its leader. The leaders' arrays, which stay on their devices, are exchanged
between the nodes. Each leader then broadcasts in its node. Inside nodes NCCL does it where every rank has its own GPU;
otherwise the ranks read each other's mapped memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collectives.execution.node import Requests
from collectives.execution.operations import Operation
from collectives.execution.plans import Plan

if TYPE_CHECKING:
    from collectives.execution.device.device import Device


class HierarchyPlan(Plan):
    """A reduce inside the node, a plan between leaders and a broadcast inside the node, as far as needed.

    `inner_reduce` and `inner_bcast` are the node's plans, or None where the collective has no such part. `between` is
    the leaders' plan, None on other ranks. `ranks` is the number of ranks on all nodes.
    """

    def __init__(
        self,
        device: Device,
        inner_reduce: Plan | None,
        between: Plan | None,
        inner_bcast: Plan | None,
        op: Operation | None,
        ranks: int,
    ):
        self.device, self.op, self.ranks = device, op, ranks
        self.parts = [part for part in (inner_reduce, between, inner_bcast) if part is not None]
        self.inner_reduce, self.between, self.inner_bcast = inner_reduce, between, inner_bcast
        self._stream, self._given, self._last = device.stream(), device.event(), device.event()
        self._sum: Any = None

    def bind(self, send: Any, recv: Any) -> None:
        """Bind the arrays to the parts."""
        super().bind(send, recv)
        place = recv if recv is not None else self._scratch(send) if self.op and self.between else send
        if self.inner_reduce is not None:
            self.inner_reduce.bind(send, place if self.between else None)
        if self.between is not None:
            self.between.bind(place, place if self.op and recv is not None else None)
        if self.inner_bcast is not None:
            self.inner_bcast.bind(place, None)

    def steps(self, wait: bool) -> Requests:
        """Do the parts in order, on one stream."""
        with self._stream:
            self._stream.wait_event(self._given)
            self.parts[0].mark()
        for part, following in zip(self.parts, [*self.parts[1:], None], strict=True):
            yield from part.steps(wait)
            with self._stream:
                part.follow()
                if following is not None:
                    following.mark()
        if self.op and self.op.divided and self.recv is not None:
            self.device.divide(self.recv, self.ranks, self._stream)
        self._last.record(self._stream)

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

    def _scratch(self, like: Any) -> Any:
        """Return the array of the node's sum on a leader without a result."""
        if self._sum is None or self._sum.size != like.size:
            self._sum = self.device.empty((like.size,), like.dtype)
        return self._sum
