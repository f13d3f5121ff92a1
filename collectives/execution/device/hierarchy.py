"""Hierarchy: device arrays over nodes, inside each node between its GPUs, and between nodes by a schedule of ours.

The ranks of a node join their contributions on one of them, its leader; the leaders' buffers, which stay on their
devices, go between the nodes; then each leader's node gets what is its due. Where every rank has a GPU of its own NCCL
works inside the nodes, else the ranks read each other's mapped memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collectives.execution.node import Requests
from collectives.execution.operations import Operation
from collectives.execution.plans import Plan

if TYPE_CHECKING:
    from collectives.execution.device.device import Device


class HierarchyPlan(Plan):
    """A reduce inside the node, a plan between leaders, a broadcast inside the node: what of them is needed.

    `inner_reduce` and `inner_bcast` are the node's plans, None where the collective has no such part; `between` is the
    leaders', None on other ranks.
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
        super().bind(send, recv)
        place = recv if recv is not None else self._scratch(send) if self.op and self.between else send
        if self.inner_reduce is not None:
            self.inner_reduce.bind(send, place if self.between else None)
        if self.between is not None:
            self.between.bind(place, place if self.op and recv is not None else None)
        if self.inner_bcast is not None:
            self.inner_bcast.bind(place, None)

    def steps(self, wait: bool) -> Requests:
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
        self._given.record(self.device.current())

    def follow(self) -> None:
        self.device.current().wait_event(self._last)

    def free(self) -> None:
        for part in self.parts:
            part.free()
        self._last.Wait()

    def _scratch(self, like: Any) -> Any:
        """Return where the node's sum goes on a leader that is to get no result."""
        if self._sum is None or self._sum.size != like.size:
            self._sum = self.device.empty((like.size,), like.dtype)
        return self._sum
