"""Mirror: the root's parameters and history, sent to another rank every few iterations while ranks compute.

With "reduce-bcast" the root alone has the history. Its buddy is a rank of another node, if there is one: a node that
fails takes its own ranks along. At the begin of an iteration the root copies its values, and sends the copy in pieces,
which the workflow's drive advances. The buddy receives into one of two buffers, in turn: a mirror counts once all of it
has arrived, and until then the one before it does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from collectives.loss import ignoring_loss, is_loss
from scaffe.blob import on_host
from scaffe.monitor.log import log
from scaffe.monitor.record import RANKS
from scaffe.parallel.meter import Meter
from scaffe.parallel.world import World

if TYPE_CHECKING:
    from mpi4py import MPI

PIECE = 1 << 20  # elements of a message


class Mirrored(NamedTuple):
    """A mirror on the buddy: where training was, and the arrays, which the mirror after the next one overwrites."""

    about: Any
    arrays: list[np.ndarray]


def buddy_of(hosts: Sequence[str], root: int) -> int | None:
    """Return the rank that keeps the root's mirror, given the hosts of all ranks; None for a rank alone.

    It is the lowest on another host, or else the lowest other rank.
    """
    others = [rank for rank in range(len(hosts)) if rank != root]
    return next((rank for rank in others if hosts[rank] != hosts[root]), others[0] if others else None)


class Mirror:
    """Mirrors of the root's arrays on its buddy, every `every` iterations: a transfer that a drive advances.

    `kept` is the last whole one, on the buddy; it outlasts recoveries, until the next one is whole. The buffers are
    allocated once: one on the root, two on the buddy, each as large as the arrays together.
    """

    def __init__(self, every: int):
        self.every = every
        self.meter = Meter("mirror")
        self.kept: Mirrored | None = None
        self._buffers: list[np.ndarray] = []
        self._comm: MPI.Intracomm | None = None
        self._requests: deque[MPI.Request] = deque()
        self._receiving: Mirrored | None = None
        self._is_broken = False
        self._is_due = True

    def open(self, world: World, arrays: Sequence[np.ndarray]) -> None:
        """Take these ranks, and these arrays of float32, from now on. Collective."""
        self._world, self._arrays = world, arrays
        self._buddy = buddy_of([host for host, _ in world.places], world.root)
        self._comm, self._is_due = None, True
        if self._buddy is None:
            return
        self._comm = world.comm.Dup()
        text = "The solver's state is mirrored on rank %d on %s every %d iteration(s): %d bytes"
        log.info(text, self._buddy, world.places[self._buddy][0], self.every, sum(one.nbytes for one in arrays))

    def feed(self, iteration: int, about: Any, has_all: bool = False) -> None:
        """Begin a mirror if one is due at the begin of this iteration, and wait for the one before it.

        The first one is due at once. All ranks call it alike; the root and its buddy communicate, unless the buddy
        `has_all` of the root's values: then it copies its own, and the mirror is whole at once.
        """
        if not (self._is_due or iteration % self.every == 0):
            return
        self.finish()
        self._is_due = False
        if self._comm is None or self._world.rank != self._buddy:
            self.kept = None
        if self._comm is None or self._buddy is None:
            return
        if has_all:
            self._copy(about)
        elif self._world.is_root:
            self._send(self._comm, self._buddy)
        elif self._world.rank == self._buddy:
            self._receive(self._comm, about)

    def _send(self, comm: MPI.Intracomm, buddy: int) -> None:
        """Copy the arrays, which the iteration's updates overwrite, and send the copy."""
        buffer = self._buffer(0)
        self._copy_to(buffer)
        self._requests.extend(comm.Isend(piece, buddy) for piece in pieces(buffer))

    def _receive(self, comm: MPI.Intracomm, about: Any) -> None:
        """Receive into the buffer that does not hold the last whole mirror."""
        buffer = self._free_buffer()
        self._receiving = Mirrored(about, self._cut(buffer))
        self._requests.extend(comm.Irecv(piece, self._world.root) for piece in pieces(buffer))

    def _copy(self, about: Any) -> None:
        """Make this rank's values the mirror, if it is the buddy."""
        if self._world.rank == self._buddy:
            self.kept = Mirrored(about, self._copy_to(self._free_buffer()))

    def _copy_to(self, buffer: np.ndarray) -> list[np.ndarray]:
        """Copy this rank's arrays to a buffer; return the copies."""
        copies = self._cut(buffer)
        for copy, array in zip(copies, self._arrays, strict=True):
            np.copyto(copy, on_host(array))
        return copies

    def _free_buffer(self) -> np.ndarray:
        """Return the buffer that does not hold the last whole mirror."""
        buffer = self._buffer(0)
        if self.kept is not None and np.may_share_memory(buffer, self.kept.arrays[0]):
            buffer = self._buffer(1)
        return buffer

    def _buffer(self, k: int) -> np.ndarray:
        if k == len(self._buffers):
            self._buffers.append(np.empty(sum(one.size for one in self._arrays), np.float32))
        return self._buffers[k]

    def _cut(self, buffer: np.ndarray) -> list[np.ndarray]:
        """Return a buffer as the arrays that it holds."""
        return np.split(buffer, np.cumsum([one.size for one in self._arrays])[:-1])

    # While it is under way.

    def progress(self) -> bool:
        """Advance the messages; return whether any is complete."""
        return self._take_off(lambda request: request.Test())

    def idle(self) -> bool:
        """Return whether no message is in flight. Calls no MPI."""
        return not self._requests

    def finish(self) -> None:
        """Wait for the messages in flight."""
        if self._requests:
            with self._world.record.waiting(RANKS):
                self._take_off(lambda request: request.Wait())

    def _take_off(self, is_complete: Callable[[MPI.Request], bool]) -> bool:
        """Remove the first messages, those that are complete; without any left the mirror is whole."""
        before = len(self._requests)
        try:
            while self._requests and is_complete(self._requests[0]):
                self._requests.popleft()
        except Exception:
            self._is_broken = True
            raise
        if before and not self._requests:
            self._commit()
        return len(self._requests) < before

    def _commit(self) -> None:
        """Replace the last whole mirror by the one that has arrived."""
        if self._receiving is not None:
            self.kept, self._receiving = self._receiving, None

    def forget(self) -> None:
        """Drop the mirror: training goes on from elsewhere. All ranks call it alike."""
        self.finish()
        self.kept, self._is_due = None, True

    # The end.

    def break_off(self) -> None:
        """End this object's messages, on all ranks, since one is lost; a mirror that is not whole is dropped."""
        if self._comm is None:
            return
        with ignoring_loss():
            self._comm.Revoke()
        while self._requests:
            try:
                self._requests.popleft().Wait()
            except Exception as error:
                if not is_loss(error):
                    raise
                self._is_broken = True
        if not self._is_broken:
            self._commit()
        self._receiving, self._is_broken = None, False

    def close(self) -> None:
        """Wait for the messages in flight, and free the communicator. Collective."""
        self.finish()
        if self._comm is not None:
            self._comm.Free()
            self._comm = None


def pieces(buffer: np.ndarray) -> list[np.ndarray]:
    """Return a flat array in pieces, so that other messages come in between."""
    return [buffer[start : start + PIECE] for start in range(0, buffer.size, PIECE)]
