"""What the benchmark times: calls of a collective, alone or while the rank computes, as OSU does."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from collectives.arguments import on_device
from collectives.bench.options import ROTATE, TYPES
from collectives.communicator import Communicator
from collectives.execution.plans import Plan
from collectives.execution.transport import message_type
from collectives.verbs import (
    ALLGATHER,
    BCAST,
    REDUCE,
    REDUCE_SCATTER,
    SCHEDULED,
    arrays_of,
    counts_of,
    even_bounds,
)

FEW = 8192  # bytes above which OSU makes fewer calls


class Buffers:
    """The arrays of a message size, which all algorithms use. Making them is collective, and so is `free`."""

    def __init__(self, comm: Communicator, nbytes: int, options: argparse.Namespace):
        self.comm, self.where = comm, "foreign" if options.foreign else options.accelerator
        dtype = np.dtype(TYPES[options.type])
        self.send, self.recv = (self._make(nbytes // dtype.itemsize, dtype) for _ in range(2))

    def _make(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Return an array of `count` elements."""
        return np.zeros(count, dtype) if self.where == "foreign" else self.comm.empty(count, dtype, device=self.where)

    def free(self) -> None:
        """Free the memory, and the plans that keep it."""
        self.comm.give_back(*([self.send, self.recv] if self.where == "cpu" else []))


class Case:
    """An algorithm for one collective and size."""

    travels: Any = slice(None)  # the elements that do

    def __init__(self, buffers: Buffers, what: str, algorithm: str, options: argparse.Namespace, chunk_bytes: int = 0):
        self.comm, self.what, self.algorithm, self.buffers = buffers.comm, what, algorithm, buffers
        self.verb, self.root, self.checks = SCHEDULED[what], options.root, options.validation_warmup
        self.vector = buffers.send if options.in_place or self.verb is BCAST else buffers.recv  # with the result
        self.send, self.recv = buffers.send, None
        if self.vector is buffers.recv and self.verb.has_blocks:
            self.send, self.recv = arrays_of(self.verb, self.comm.rank, self.comm.size, 0, buffers.send, buffers.recv)
        elif self.vector is buffers.recv:
            self.recv = buffers.recv
        how = {"algorithm": algorithm, "chunk_bytes": chunk_bytes or options.chunk_bytes}
        self.how: dict[str, Any] = {name: how[name] for name in how if how[name] not in ("auto", 0)}  # words cost time
        self._run = self._bound(getattr(self.comm, what))
        self.device = self.comm.device_plans.device if on_device(self.send) else None
        if self.device is not None:
            self._done = self.device.event()

    @property
    def transmit_bytes(self) -> int:
        """Return the bytes of the elements that travel."""
        return int(self.vector[self.travels].nbytes)

    def at(self, i: int) -> int:
        """Return the root of call number `i`."""
        return i % self.comm.size if self.root == ROTATE else self.root

    def plan(self, i: int) -> Plan:
        """Return the plan of call number `i`."""
        return self.comm.plan(self.what, self.send, self.recv, root=self.at(i), **self.how)

    def place(self, part: slice) -> slice:
        """Return where a part of the result lies in the vector."""
        return part

    def run(self, i: int) -> None:
        """Call it as users do; return when the result is complete."""
        self._run(i)
        self.settle()

    def settle(self) -> None:
        """Wait for the caller's stream."""
        if self.device is not None:
            self._done.record(self.device.current())
            self._done.Wait()

    def _bound(self, call: Callable[..., None]) -> Callable[[int], None]:
        """Return a function of the call's number with little around the call."""
        send, recv, at, how = self.send, self.recv, self.at, self.how
        if self.verb is BCAST:
            return lambda i: call(send, at(i), **how)
        if self.verb is REDUCE:
            return lambda i: call(send, recv, root=at(i), **how)
        return lambda i: call(send, recv, **how)

    def start_and_finish(self, i: int) -> None:
        """Call it as a start and a wait."""
        plan = self.plan(i)
        plan.start()
        plan.finish()
        self.settle()

    def is_right(self) -> bool:
        """Call it with known contents; return whether all results are right on all ranks.

        Contents are small integers, so that every order of additions gives the same sum.
        """
        return all([self._is_right(i) for i in range(1 + self.checks)])

    def _is_right(self, i: int) -> bool:
        """Check call number `i`."""
        rank, size, bounds = self.comm.rank, self.comm.size, even_bounds(self.vector.size, self.comm.size)
        self.buffers.recv[...] = 0
        self.buffers.send[...] = (i + rank + 1) % 100
        self.run(i)
        known = np.zeros(self.vector.size, np.int64)
        for each in range(size):
            known[slice(*self.verb.contribution(each, self.at(i), bounds))] += (i + each + 1) % 100
        part = slice(*self.verb.result(rank, self.at(i), bounds))
        is_inside = self.recv is None or self.recv.size == known.size
        result = on_host(self.vector[self.place(part)] if is_inside else self.recv)
        fine = bool((result == known[part])[self.travels].all())
        self.buffers.send[...] = 0  # in place, sums would grow with each call
        return bool(self.comm.comm.allreduce(fine, MPI.LAND))


class LibraryCase(Case):
    """The MPI library's collective as mpi4py calls it, without a plan of ours."""

    def __init__(self, buffers: Buffers, what: str, options: argparse.Namespace):
        super().__init__(buffers, what, "mpi", options)
        self.call = getattr(self.comm.comm, what.capitalize() + "v" * (self.verb is ALLGATHER))
        self.bounds = even_bounds(self.vector.size, self.comm.size)
        self.given: tuple[Any, Any] = self.send, self.recv  # MPI's arguments

    def place(self, part: slice) -> slice:
        """Return where a part of the result lies: in place a reduce_scatter of MPI puts it at the beginning."""
        return slice(0, part.stop - part.start) if self.verb is REDUCE_SCATTER and self.recv is None else part

    def run(self, i: int) -> None:
        """Call mpi4py's method."""
        if self.verb is BCAST:
            self.call(self.given[0], self.at(i))
        elif self.verb is REDUCE:
            self.call(*self._both(self.comm.rank == self.at(i)), MPI.SUM, self.at(i))
        elif self.verb is ALLGATHER:
            send, recv = self._both(True)
            self.call(send, [recv, (counts_of(self.bounds), self.bounds[:-1]), message_type(recv.dtype)])
        elif self.verb is REDUCE_SCATTER:
            self.call(*self._both(True), counts_of(self.bounds), MPI.SUM)
        else:
            self.call(*self._both(True), MPI.SUM)

    def _both(self, has_result: bool) -> tuple[Any, Any]:
        """Return the send and receive arguments."""
        send, recv = self.given
        return (send, recv) if recv is not None or not has_result else (MPI.IN_PLACE, send)


class DerivedCase(LibraryCase):
    """The MPI library's broadcast or allgather of a derived data type, of which a message, or a block, is one element.

    Blocks whose lengths differ by an element carry the type of the shortest.
    """

    def __init__(self, buffers: Buffers, what: str, options: argparse.Namespace):
        super().__init__(buffers, what, options)
        self.starts = self.bounds[:-1] if self.verb is ALLGATHER else (0,)
        count = self.vector.size // len(self.starts)
        places, self.travels = options.derived.places(count), np.zeros(self.vector.size, bool)
        for start in self.starts:
            self.travels[start : start + count] = places
        base = message_type(self.send.dtype)
        self.type = options.derived.datatype(base, count).Create_resized(0, base.Get_size()).Commit()

    def run(self, i: int) -> None:
        """Call mpi4py's method."""
        if self.verb is BCAST:
            self.call([self.send, 1, self.type], self.at(i))
            return
        send, recv = self._both(True)
        one = send if send is MPI.IN_PLACE else [send, 1, self.type]
        self.call(one, [recv, ([1] * len(self.starts), self.starts), self.type])


class DeviceLibraryCase(LibraryCase):
    """The MPI library's collective on device arrays, or on pinned copies where it takes no device pointers."""

    def __init__(self, buffers: Buffers, what: str, options: argparse.Namespace):
        super().__init__(buffers, what, options)
        assert self.device is not None
        self.stream, self.copies = self.device.current(), not self.comm.device_plans.direct
        if self.copies:
            pinned = [self.device.pinned(self.vector.nbytes).view(self.send.dtype) for _ in range(2)]
            self.given = pinned[0], None if self.recv is None else pinned[1]

    def run(self, i: int) -> None:
        """Copy where needed, and call mpi4py's method."""
        is_root, (send, recv) = self.comm.rank == self.at(i), self.given
        self._copy(send, self.send, self.verb is not BCAST or is_root)
        super().run(i)
        out, result = (self.send, send) if recv is None else (self.recv, recv)
        self._copy(out, result, not self.verb.has_root or is_root == self.verb.joins)

    def _copy(self, target: Any, source: Any, needed: bool) -> None:
        """Copy between the device and MPI's argument, where these differ, and wait for the device."""
        if needed and self.copies:
            assert self.device is not None
            self.device.copy(target, source, self.stream)
        self.settle()


def on_host(array: Any) -> np.ndarray:
    """Return an array, or a copy of a device array."""
    found: np.ndarray = array.get() if on_device(array) else array
    return found


def calls(options: argparse.Namespace, nbytes: int) -> tuple[int, int]:
    """Return the numbers of warm-up calls and of timed calls."""
    warmup, iterations = (10, 100) if nbytes > FEW else (100, 1000)
    return warmup if options.warmup is None else options.warmup, options.iterations or iterations


def latencies(comm: MPI.Comm, runs: Sequence[Callable[[int], None]], warmup: int, iterations: int) -> np.ndarray:
    """Return this rank's seconds of each call, of shape (runs, iterations); the runs take turns."""
    taken = np.empty((len(runs), iterations))
    for i in range(warmup + iterations):
        for k, run in enumerate(runs):
            comm.Barrier()
            start = time.perf_counter()
            run(i)
            if i >= warmup:
                taken[k, i - warmup] = time.perf_counter() - start
    return taken


class Phases:
    """The average seconds of the phases of a non-blocking collective while the rank computes for `pure` seconds."""

    def __init__(self, case: Case, pure: float, tests: int, warmup: int, iterations: int):
        """Measure; `tests` is how often the computation polls."""
        comm, work = case.comm.comm, _Work(pure, tests)
        self.overall = np.empty(iterations)
        spent = np.zeros((4, iterations))
        comm.Barrier()
        for i in range(warmup + iterations):
            start = time.perf_counter()
            plan = case.plan(i)
            plan.start()
            begun = time.perf_counter()
            tested = work.run(plan.advance)
            computed = time.perf_counter()
            plan.finish()
            case.settle()
            end = time.perf_counter()
            comm.Barrier()
            if i >= warmup:
                self.overall[i - warmup] = end - start
                spent[:, i - warmup] = computed - begun - tested, begun - start, tested, end - computed
        means = np.array([self.overall.mean(), *spent.mean(1)])
        self.whole, self.compute, self.init, self.test, self.wait = comm.allreduce(means) / comm.size

    def overlap(self, pure: float) -> float:
        """Return how much of the pure communication's time the computation hid, in percent, by OSU's formula."""
        return float(max(0.0, 100 - (self.whole - self.compute) / pure * 100))


class _Work:
    """A computation of a given time, in as many parts as there are polls."""

    def __init__(self, seconds: float, tests: int):
        self.part, self.tests = seconds / max(1, tests), tests
        self.matrix = np.ones((25, 25), np.float32)

    def run(self, between: Callable[[], object]) -> float:
        """Compute; return the seconds of the polls between the parts."""
        tested = 0.0
        for _ in range(max(1, self.tests)):
            end = time.perf_counter() + self.part
            while time.perf_counter() < end:
                self.matrix @ self.matrix
            if self.tests:
                start = time.perf_counter()
                between()
                tested += time.perf_counter() - start
        return tested


def over_ranks(comm: MPI.Comm, values: np.ndarray) -> np.ndarray:
    """Return the average, minimum and maximum over the ranks of each value, of shape (values, 3)."""
    every = np.array(comm.allgather(values))
    return np.stack([every.mean(0), every.min(0), every.max(0)], 1)


def percentiles(comm: MPI.Comm, taken: np.ndarray, wanted: Sequence[int]) -> dict[int, float]:
    """Return percentiles over calls of the average over ranks. `taken` holds the seconds of this rank's calls."""
    ordered = np.sort(comm.allreduce(taken) / comm.size)
    return {p: float(ordered[max(0, len(ordered) * p // 100 - 1)]) for p in wanted}
