"""Plans: schedules, or other ways to do a collective, bound to buffers. A plan is made once and run often.

A plan is bound to arrays, then either run, or started and advanced until it has ended. All methods except `mark` and
`follow` are collective, in the same order on all ranks, and called by one thread.

On a device a plan has ended when its work is on the device's streams. `mark` records the point on the calling thread's
stream after which the contribution is complete; `follow` makes that stream wait for the result. Neither waits itself,
and for host memory both do nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from collectives.agreement import end_job
from collectives.errors import CollectiveError, RankLostError
from collectives.execution.execute import Execution
from collectives.execution.node import NodeComm, RemoteBuffer, Requests, blocks
from collectives.execution.operations import Operation, wide
from collectives.execution.peer import address
from collectives.execution.transport import HostTransport, Request, Transport, message_type
from collectives.loss import noticing, regardless
from collectives.progress import PROGRESS
from collectives.schedules.schedule import Schedule, uses_out

if TYPE_CHECKING:
    from mpi4py import MPI

Array = np.ndarray | None
KEPT, KEPT_BYTES = 8, 1 << 30  # calls, and their bytes, whose arrays a plan keeps


def kept(nbytes: int) -> int:
    """Return for how many calls, of `nbytes` bytes each, a plan keeps the arrays: at least 1."""
    return max(1, min(KEPT, KEPT_BYTES // max(nbytes, 1)))


class Plan:
    """Base of all plans. `op` is None for a broadcast; `recv` is None on ranks without a result."""

    send: np.ndarray
    recv: Array
    op: Operation | None = None
    taken = 0  # requests that `advance` has seen complete: shows progress
    failure: Exception | None = None
    _steps: Requests | None = None
    _waiting: Request | None = None

    def bind(self, send: np.ndarray, recv: Array) -> None:
        """Use these arrays: flat, contiguous, of the type and length that the plan was made for.

        Not collective: each rank binds, and drops, its own arrays.
        """
        self.send, self.recv = send, recv

    def free(self) -> None:
        """Free what is held outside this process's memory. Nothing may be under way; device work is awaited."""

    def steps(self, wait: bool) -> Requests:
        """Do the work; yield the requests that it must wait for. With `wait` prefer waiting to yielding."""
        raise NotImplementedError

    def under_way(self) -> Requests:
        """Iterate over the requests of a run that was broken off, but for the one that `advance` waits for."""
        return iter(())

    def drain(self) -> None:
        """Wait for all messages of a run that a lost rank has broken off; the plan can't be run again.

        Its communicators are revoked, so that they end. Open MPI ends a process that drops them.
        """
        PROGRESS.drop(self)
        self.failure = RankLostError("a rank was lost: this plan's communicator was revoked")
        waiting = [] if self._waiting is None else [self._waiting]
        for request in chain(waiting, self.under_way()):
            with regardless():
                request.Wait()
        self._steps = self._waiting = None

    def mark(self) -> None:
        """Make the work begin after what is on the calling thread's stream now."""

    def follow(self) -> None:
        """Make the calling thread's stream wait for the result."""

    @noticing
    def run(self) -> None:
        """Run to the end."""
        self.mark()
        for request in self.steps(wait=True):
            request.Wait()
        self.follow()

    def start(self) -> None:
        """Begin without waiting for other ranks. Until the end, whoever waits in this process advances the plan."""
        self.mark()
        self.begin()
        if self._steps is not None:
            PROGRESS.add(self)

    def begin(self) -> None:
        """Begin as `start` does, after a call of `mark`; the caller alone advances the plan."""
        self._steps, self._waiting = self.steps(wait=False), None
        self.advance()

    def progress(self) -> bool:
        """Advance as far as possible without waiting; return whether anything advanced."""
        before = self.taken
        if self.advance():
            PROGRESS.drop(self)
        return self.taken != before

    @noticing
    def advance(self) -> bool:
        """Advance as far as possible without waiting; return whether the end is reached."""
        return PROGRESS.step(self, self._advance)

    def _advance(self) -> bool:
        """Take steps until one must wait; return whether the end is reached."""
        while self._steps is not None and (self._waiting is None or self._waiting.Test()):
            self._waiting = next(self._steps, None)
            self.taken += 1
            if self._waiting is None:
                self._steps = None
        return self._steps is None

    @noticing
    def finish(self) -> None:
        """Wait for the end, then `follow`. Meanwhile all else advances that is under way in this process."""
        PROGRESS.drop(self)
        while self._steps is not None:
            if self._waiting is None or PROGRESS.is_busy:
                PROGRESS.wait_until(lambda: self._steps is None, self)
            else:
                self._waiting.Wait()
                self._waiting = None
                self.advance()
        self.follow()


class LibraryPlan(Plan):
    """The MPI library's own collective."""

    def __init__(self, comm: MPI.Intracomm, what: str, op: Operation | None, root: int, dtype: np.dtype):
        from mpi4py import MPI

        self.comm, self.what, self.op, self.root, self.type = comm, what, op, root, message_type(dtype)
        self._mpi_op = {"sum": MPI.SUM, "mean": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}[op.name] if op else None

    def bind(self, send: np.ndarray, recv: Array) -> None:
        """Bind the library's call to the arrays."""
        super().bind(send, recv)
        self._call = partial(getattr(self.comm, self.what.capitalize()), *self._arguments())

    @noticing
    def run(self) -> None:
        """Call the blocking collective."""
        self._call()
        if self.op and self.op.divided:
            self._divide()

    def steps(self, wait: bool) -> Requests:
        """Start the non-blocking collective; yield its request."""
        yield getattr(self.comm, f"I{self.what}")(*self._arguments())
        self._divide()

    def _divide(self) -> None:
        """Turn a sum into a mean where that is asked for."""
        if self.op and self.op.divided and self.recv is not None:
            divide(self.recv, self.comm.size)

    def _arguments(self) -> list[Any]:
        """Return the arguments of the library's call."""
        from mpi4py import MPI

        send = [self.send, self.type]
        if self.what == "bcast":
            return [send, self.root]
        in_place = self.recv is not None and address(self.recv) == address(self.send)
        recv = None if self.recv is None else [self.recv, self.type]
        arguments = [MPI.IN_PLACE if in_place else send, recv, self._mpi_op]
        return arguments if self.what == "allreduce" else [*arguments, self.root]


class TransportPlan(Plan):
    """A plan whose transport knows what is under way on a device."""

    transport: Transport

    def mark(self) -> None:
        """Mark the calling thread's stream."""
        self.transport.mark()

    def follow(self) -> None:
        """Make the calling thread's stream wait for the transport's."""
        self.transport.follow()

    def free(self) -> None:
        """Wait for the transport's last run."""
        self.transport.free()

    def drain(self) -> None:
        """Wait for the messages that have begun; see Plan."""
        self.transport.break_off()
        super().drain()


class SchedulePlan(TransportPlan):
    """A schedule's steps, run by `Execution`."""

    def __init__(
        self, schedule: Schedule, comm: MPI.Intracomm, op: Operation | None, transport: Transport | None = None
    ):
        self.schedule, self.comm, self.op = schedule, comm, op
        self.transport: Transport = HostTransport() if transport is None else transport
        self._room: Array = None
        self._executions: OrderedDict[tuple[int, int], Execution] = OrderedDict()  # by addresses, latest last

    def bind(self, send: np.ndarray, recv: Array) -> None:
        """Find the execution over these arrays, or make it."""
        super().bind(send, recv)
        place = address(send), 0 if recv is None else address(recv)
        if place not in self._executions:
            self._executions[place] = self._over(*((None, send) if self.op is None else (send, self._out(send, recv))))
        self._executions.move_to_end(place)
        self._execution = self._executions[place]
        while len(self._executions) > kept(send.nbytes):
            self._executions.popitem(last=False)

    def _over(self, own: Array, out: Array) -> Execution:
        """Return a new execution. It keeps the arrays, so that no others get their addresses."""
        if self._executions:
            return next(iter(self._executions.values())).over(own, out)
        return Execution(self.schedule, self.comm, self.op, own, out, self.transport)

    def _out(self, send: np.ndarray, recv: Array) -> Array:
        """Return where sums are kept: `recv`, or scratch on a rank that has sums on the way but no result."""
        if recv is None and self._room is None and uses_out(self.schedule.rank(self.comm.rank)):
            self._room = self.transport.empty((send.size,), send.dtype)
        return self._room if recv is None else recv

    def under_way(self) -> Requests:
        """Iterate over the requests of all executions."""
        for execution in self._executions.values():
            yield from execution.under_way()

    def steps(self, wait: bool) -> Requests:
        """Take the schedule's steps."""
        yield from self._execution.run()
        start, stop = self.schedule.result(self.comm.rank)
        if self.op and self.op.divided and self.recv is not None:
            self.transport.divide(self.recv[start:stop], self.schedule.size)
        self.transport.end()


class NodePlan(Plan):
    """Algorithm `slices`: each rank of the node joins its slice of all contributions and writes it to every result."""

    def __init__(self, node: NodeComm, what: str, op: Operation | None, root: int):
        self.node, self.what, self.op, self.root = node, what, op, root

    def steps(self, wait: bool) -> Requests:
        """Exchange the places of the arrays, join this rank's slice, wait for the others."""
        node, send, recv = self.node, self.send, self.recv
        yield from node.announce(send, send if recv is None else recv, wait)
        if self.op is None:
            fetch_all(node, self.root, send)
        else:
            start, stop = node.slice(send.size)
            targets = node.targets if self.what == "allreduce" else [node.targets[self.root]]
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


class LeaderPlan(Plan):
    """Algorithm `leaders-NAME` over nodes with equally many ranks: each rank carries its slice between the nodes.

    The ranks of a node join their slices. Ranks with the same number on their nodes run `between`, a plan over `cross`
    and the slice. Then the ranks of each node that gets the result put it together (DPML, Bayatpour et al. 2017).
    """

    def __init__(
        self, node: NodeComm, cross: MPI.Intracomm, between: Plan, what: str, op: Operation | None, root: Root
    ):
        self.node, self.cross, self.between, self.what, self.op, self.root = node, cross, between, what, op, root
        self._slice = np.empty(0)

    def bind(self, send: np.ndarray, recv: Array) -> None:
        """Bind the arrays, and the slice to the plan between the nodes."""
        super().bind(send, recv)
        start, stop = self.node.slice(send.size)
        if self._slice.size != stop - start:
            self._slice = np.empty(stop - start, send.dtype)
        has_result = self.what != "reduce" or self.cross.rank == self.root.node
        self.between.bind(self._slice, self._slice if self.op and has_result else None)

    def under_way(self) -> Requests:
        """Iterate over the requests between the nodes."""
        return self.between.under_way()

    def steps(self, wait: bool) -> Requests:
        """Reduce in the node, run the plan between the nodes, write the result in the node."""
        node, send, recv = self.node, self.send, self.recv
        start, _ = node.slice(send.size)
        at_root = self.cross.rank == self.root.node
        try:
            yield from node.announce(send, send if recv is None else recv, wait)
        except CollectiveError as error:  # raised on this node's ranks alone
            end_job(self.cross, str(error))
        if self.op is not None:
            node.join(send, self.op._replace(divided=False), start, self._slice)
        elif at_root:
            np.copyto(self._slice, node.fetch(node.sources[self.root.local], start, self._slice))
        yield from self.between.steps(wait)
        if self.op and self.op.divided:
            divide(self._slice, self.node.size * self.cross.size)
        for target in self._targets(at_root):  # this rank alone has read these elements, and is done
            node.put(target, start, self._slice)
        yield from node.finish(wait)

    def _targets(self, at_root: bool) -> list[RemoteBuffer]:
        """Return the buffers of this node that get the result."""
        if self.what == "reduce":
            return [self.node.targets[self.root.local]] if at_root else []
        if self.what == "bcast" and at_root:
            return [target for target in self.node.targets if target.rank != self.root.local]
        return self.node.targets


class Root(NamedTuple):
    """The root's node, and its rank there."""

    node: int
    local: int


def fetch_all(node: NodeComm, root: int, array: np.ndarray) -> None:
    """Fill the array with the root's, unless this rank is the root."""
    if node.rank != root and (found := node.fetch(node.sources[root], 0, array)) is not array:
        np.copyto(array, found)


def divide(values: np.ndarray, ranks: int) -> None:
    """Turn a sum over `ranks` ranks into a mean."""
    np.divide(values, ranks, out=values, dtype=wide(values.dtype), casting="same_kind")
