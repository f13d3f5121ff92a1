"""Plans of a node: each rank works on its part of the elements, alone or with the same ranks of the other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectives.agreement import end_job
from collectives.errors import CollectiveError
from collectives.execution.node import NodeComm, RemoteBuffer, Requests, blocks
from collectives.execution.operations import Operation
from collectives.execution.plans import Array, Plan, divide, part_of
from collectives.verbs import SCHEDULED, Slice, block_of, bounds_of

if TYPE_CHECKING:
    from mpi4py import MPI


class NodePlan(Plan):
    """Algorithm `slices`: each rank of the node joins its slice of all contributions and writes it to every result."""

    def __init__(self, node: NodeComm, what: str, op: Operation | None, root: int):
        self.node, self.verb, self.op, self.root = node, SCHEDULED[what], op, root

    def steps(self, wait: bool) -> Requests:
        """Exchange the places of the arrays, join this rank's slice, wait for the others."""
        node, send, recv = self.node, self.send, self.recv
        yield from node.announce(send, send if recv is None else recv, wait)
        if self.op is None:
            fetch_all(node, self.root, send)
        else:
            start, stop = node.slice(send.size)
            targets = node.targets if self.verb.spreads else [node.targets[self.root]]
            self._reduce(start, stop, [target for target in targets if target.rank != node.rank])
        yield from node.finish(wait)

    def _reduce(self, start: int, stop: int, others: list[RemoteBuffer]) -> None:
        """Join this rank's slice. A result that can't be joined in place is written block by block, from the cache."""
        assert self.op is not None
        node, dtype = self.node, self.send.dtype
        own = None if self.recv is None else self.recv[start:stop]
        if own is None and others[0].window >= 0:
            own = node.view(others.pop(0), start, stop - start, dtype)
        if own is not None and not others:
            node.join(self.send, self.op, start, own)
            return
        for at, end in blocks(start, stop):
            result = node.result(dtype, end - at) if own is None else own[at - start : end - start]
            node.join(self.send, self.op, at, result)
            for target in others:
                node.put(target, at, result)


class NodeBlocksPlan(Plan):
    """Algorithm `slices` of a verb whose result, or contribution, is each rank's block."""

    def __init__(self, node: NodeComm, op: Operation | None, bounds: Sequence[int]):
        self.node, self.op, self.bounds = node, op, bounds
        self._start, self._stop = block_of(node.rank, bounds)

    def steps(self, wait: bool) -> Requests:
        """Join this rank's block of all contributions, or write it to every result."""
        node, send, recv = self.node, self.send, self.recv
        assert recv is not None
        yield from node.announce(send, recv, wait, self.bounds[-1] * send.itemsize)
        if self.op is None:
            give_block(node, part_of(send, self._start, self._stop), self._start, recv is send)
        else:
            node.join(send, self.op, self._start, part_of(recv, self._start, self._stop))
        yield from node.finish(wait)


class LeaderPlan(Plan):
    """Algorithm `leaders-NAME` over nodes with equally many ranks: each rank carries its slice between the nodes.

    The ranks of a node join their slices. Ranks with the same number on their nodes run `between`, a plan over `cross`
    and the slice. Then the ranks of each node that gets the result put it together (DPML, Bayatpour et al. 2017).
    """

    def __init__(
        self, node: NodeComm, cross: MPI.Intracomm, between: Plan, what: str, op: Operation | None, root: Root
    ):
        self.node, self.cross, self.between, self.op, self.root = node, cross, between, op, root
        self.verb, self._slice = SCHEDULED[what], np.empty(0)
        is_at_root = cross.rank == root.node
        self._is_at_root, self._has_result = is_at_root, is_at_root or self.verb.spreads

    def bind(self, send: np.ndarray, recv: Array) -> None:
        """Bind the arrays, and the slice to the plan between the nodes."""
        super().bind(send, recv)
        start, stop = self.node.slice(send.size)
        if self._slice.size != stop - start:
            self._slice = np.empty(stop - start, send.dtype)
        self.between.bind(self._slice, self._slice if self.op and self._has_result else None)

    def under_way(self) -> Requests:
        """Iterate over the requests between the nodes."""
        return self.between.under_way()

    def steps(self, wait: bool) -> Requests:
        """Reduce in the node, run the plan between the nodes, write the result in the node."""
        node, send, recv = self.node, self.send, self.recv
        start, _ = node.slice(send.size)
        yield from announced(node, self.cross, send, send if recv is None else recv, wait, send.nbytes)
        if self.op is not None:
            node.join(send, self.op._replace(divided=False), start, self._slice)
        elif self._is_at_root:
            np.copyto(self._slice, node.fetch(node.sources[self.root.local], start, self._slice))
        yield from self.between.steps(wait)
        if self.op and self.op.divided:
            divide(self._slice, node.size * self.cross.size)
        for target in self._targets():  # this rank alone has read these elements, and is done
            node.put(target, start, self._slice)
        yield from node.finish(wait)

    def _targets(self) -> list[RemoteBuffer]:
        """Return the buffers of this node that get the result."""
        if not self._has_result:
            return []
        if not self.verb.spreads:
            return [self.node.targets[self.root.local]]
        is_source = self.op is None and self._is_at_root
        return [one for one in self.node.targets if not (is_source and one.rank == self.root.local)]


class LeaderBlocksPlan(Plan):
    """Algorithm `leaders-NAME` of a verb whose result, or contribution, is each rank's block.

    This rank's slice is the blocks of the ranks with its number on all nodes, which `between` exchanges among them.
    `parts` are these blocks in the vector, in the order of the nodes.
    """

    def __init__(
        self,
        node: NodeComm,
        cross: MPI.Intracomm,
        between: Plan,
        op: Operation | None,
        parts: Sequence[Slice],
        count: int,
    ):
        self.node, self.cross, self.between, self.op, self.parts, self.count = node, cross, between, op, parts, count
        self._places = bounds_of([stop - start for start, stop in parts])
        self._slice = np.empty(0)

    def bind(self, send: np.ndarray, recv: Array) -> None:
        """Bind the arrays, and the slice to the plan between the nodes."""
        super().bind(send, recv)
        assert recv is not None
        if self._slice.size != self._places[-1] or self._slice.dtype != send.dtype:
            self._slice = np.empty(self._places[-1], send.dtype)
        own = self.parts[self.cross.rank]
        if self.op is None:
            self.between.bind(part_of(send, *own), self._slice)
        else:
            self.between.bind(self._slice, part_of(recv, *own))

    def under_way(self) -> Requests:
        """Iterate over the requests between the nodes."""
        return self.between.under_way()

    def steps(self, wait: bool) -> Requests:
        """Join the slice in the node and exchange it, or exchange it and write it in the node."""
        node, send, recv = self.node, self.send, self.recv
        assert recv is not None
        yield from announced(node, self.cross, send, recv, wait, self.count * send.itemsize)
        if self.op is not None:
            for (start, _), (at, end) in zip(self.parts, pairwise(self._places), strict=True):
                node.join(send, self.op._replace(divided=False), start, self._slice[at:end])
            yield from self.between.steps(wait)
            if self.op.divided:
                divide(part_of(recv, *self.parts[self.cross.rank]), node.size * self.cross.size)
        else:
            yield from self.between.steps(wait)
            for (start, _), (at, end) in zip(self.parts, pairwise(self._places), strict=True):
                give_block(node, self._slice[at:end], start, False)
        yield from node.finish(wait)


class Root(NamedTuple):
    """The root's node, and its rank there."""

    node: int
    local: int


def announced(
    node: NodeComm, cross: MPI.Intracomm, send: np.ndarray, recv: np.ndarray, wait: bool, nbytes: int
) -> Requests:
    """Exchange the places of a node's arrays. An error, which this node's ranks alone have, ends the job."""
    try:
        yield from node.announce(send, recv, wait, nbytes)
    except CollectiveError as error:
        end_job(cross, str(error))


def give_block(node: NodeComm, block: np.ndarray, start: int, in_place: bool) -> None:
    """Write a block to every rank's vector, from element `start` on; in place this rank's vector has it."""
    for target in node.targets:
        if not (in_place and target.rank == node.rank):
            node.put(target, start, block)


def fetch_all(node: NodeComm, root: int, array: np.ndarray) -> None:
    """Fill the array with the root's, unless this rank is the root."""
    if node.rank != root and (found := node.fetch(node.sources[root], 0, array)) is not array:
        np.copyto(array, found)
