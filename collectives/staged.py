"""Staged collectives: one for each of several arrays, advancing side by side while the rank computes.

    staged = Staged(comm, "reduce", layers)     # makes the plans once
    staged.start()                              # each iteration
    staged.ready(3)                             # any thread: layer 3's gradients are complete
    staged.progress()                           # one thread, now and then: advances every stage that can
    staged.wait(0)                              # the same thread: until layer 0's sum is complete

S-Caffe propagates parameters under the forward pass, and aggregates gradients under the backward pass, in this way
(sections 4.2 and 4.3). Non-blocking collectives advance only while their process is inside MPI: `progress` is the way
in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.errors import ArgumentError, DeviceFault
from collectives.loss import noticing

if TYPE_CHECKING:
    from collectives.communicator import Communicator

LANES = 2  # stages under way at once: one fills the pipeline while the one before it drains
LONGEST_PAUSE = 200e-6  # seconds: a wait that finds nothing to do leaves the processor to compute threads


class Pause:
    """Sleep between polls that find nothing to do: at first a moment, at most LONGEST_PAUSE."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def after(self, moved: bool, sleep: Callable[[float], object] = time.sleep) -> None:
        """Sleep a little longer than the last time, unless something `moved` since."""
        self._seconds = 0.0 if moved else min(LONGEST_PAUSE, 2 * self._seconds + 1e-6)
        if not moved:
            sleep(self._seconds if self._seconds > LONGEST_PAUSE / 8 else 0)


class Staged:
    """The collective `what` ("reduce", "bcast", "allreduce") of each of `arrays`, the stages, any number of times.

    Stages begin in the order of `arrays`, the same on all ranks, each once it is ready on this rank. At most `lanes`
    are under way at a time. Making the object is collective, and so is `free`. Any thread may call `ready` and
    `follow`; one thread calls the rest, and no other thread calls MPI meanwhile.

    - `comm`: the Communicator; each lane is a `dup` of it.
    - `recv`: as many arrays, which take the results; without them the results replace the contributions.
    - `op`, `root`, `how`: as in `Communicator.reduce`. "auto" leaves out the MPI library's own collectives: they
      advance one segment per poll, which is slow while a rank computes.

    `on_end`, if set, is called as `on_end(stage, begin, end)` when a stage ends on this rank, in seconds of the
    communicator's clock. `names`, if set, are the names of the stages in errors. Raise as `Communicator` does;
    ArgumentError for no lanes.
    """

    on_end: Callable[[int, float, float], object] | None = None
    names: Sequence[str] = ()

    @noticing
    def __init__(
        self,
        comm: Communicator,
        what: str,
        arrays: Sequence[np.ndarray],
        recv: Sequence[np.ndarray] | None = None,
        op: str = "sum",
        root: int = 0,
        lanes: int = LANES,
        **how: object,
    ):
        if lanes < 1:
            raise ArgumentError(f"lanes is {lanes}; it must be at least 1")
        self._comm, self._now = comm, comm.now
        comm.agree({"the number of stages": str(len(arrays)), "the number of lanes": str(lanes)})
        self._lanes = [comm.dup() for _ in range(min(lanes, len(arrays)))]
        self._plans = [
            self._lanes[i % lanes].plan(what, array, recv[i] if recv else None, op, root, number=i, staged=True, **how)  # type: ignore
            for i, array in enumerate(arrays)
        ]
        self._ready = [False] * len(self._plans)
        self._begun = len(self._plans)  # stages below this have begun
        self._under_way: list[int] = []
        self._begins = [0.0] * len(self._plans)
        self._busy, self._busy_since = 0.0, 0.0

    def __len__(self) -> int:
        """Return the number of stages."""
        return len(self._plans)

    def start(self, ready: bool = False) -> None:
        """Begin anew: no stage is complete, and none is ready unless `ready`, which makes all ready. Calls no MPI.

        Raise ArgumentError while a stage of the last round is not complete.
        """
        if not self.done():
            raise ArgumentError(f"stage {self._first_open()} has not been completed since the last start; wait for it")
        if ready:
            for plan in self._plans:
                plan.mark()
        self._ready = [ready] * len(self._plans)
        self._begun = 0

    def ready(self, stage: int) -> None:
        """Declare that a stage's array holds this rank's contribution (a broadcast: may be sent or overwritten).

        On a device the contribution counts as complete when the work on the calling thread's stream, as of now, is
        done. Calls no MPI. Raise ArgumentError for an unknown stage, and for one that is ready already.
        """
        self._check(stage)
        if self._ready[stage]:
            raise ArgumentError(f"stage {stage} is already ready since the last start")
        self._plans[stage].mark()
        self._ready[stage] = True

    def follow(self, stage: int | None = None) -> None:
        """Make the calling thread's stream wait for the result of a stage that is done, or of all. Calls no MPI.

        On a device a stage is done as soon as its work is on the device's streams. Any thread may call this.
        """
        for plan in self._plans if stage is None else [self._plans[stage]]:
            plan.follow()

    def done(self, stage: int | None = None) -> bool:
        """Return whether a stage, or without a number every stage, has ended on this rank. Calls no MPI."""
        if stage is None:
            return self._begun == len(self._plans) and not self._under_way
        self._check(stage)
        return stage < self._begun and stage not in self._under_way

    def idle(self) -> bool:
        """Return whether nothing can advance until a stage is made ready. Calls no MPI."""
        return not self._under_way and not self._may_begin()

    @property
    def all_ready(self) -> bool:
        """Return whether all stages are ready since the start, so that waiting for them ends."""
        return all(self._ready[self._begun :])

    @property
    def lanes(self) -> int:
        """Return how many stages can be under way at a time; stage i runs in lane i % lanes."""
        return len(self._lanes)

    @property
    def busy(self) -> float:
        """Return the seconds in which any stage was under way on this rank, since the object was made."""
        return self._busy + (self._now() - self._busy_since if self._under_way else 0.0)

    def progress(self) -> bool:
        """Advance every stage that can advance without waiting; return whether any did."""
        moved = False
        for stage in list(self._under_way):
            plan = self._plans[stage]
            before = plan.taken
            if self._name_fault(stage, plan.advance):
                self._end(stage)
            moved |= plan.taken != before or stage not in self._under_way
        while self._may_begin():
            moved = True
            self._begin(self._begun)
        return moved

    def _name_fault(self, stage: int, step: Callable[..., Any], **how: Any) -> Any:
        """Return the result of a stage's `step`; a DeviceFault names the stage."""
        try:
            return step(**how)
        except DeviceFault as error:
            raise error.located(self.names[stage] if self.names else f"stage {stage}") from None

    def _begin(self, stage: int) -> None:
        """Start a stage."""
        self._begins[stage] = now = self._now()
        if not self._under_way:
            self._busy_since = now
        self._under_way.append(stage)  # first: other threads call `done`
        self._begun += 1
        self._name_fault(stage, self._plans[stage].start, marked=True)

    def _end(self, stage: int) -> None:
        """Account for a stage that has ended."""
        self._under_way.remove(stage)
        now = self._now()
        if not self._under_way:
            self._busy += now - self._busy_since
        if self.on_end is not None:
            self.on_end(stage, self._begins[stage], now)

    def wait(self, stage: int | None = None) -> None:
        """Advance until a stage, or without a number every stage, has ended on this rank; then `follow`.

        Another thread must make stages ready that are not yet ready.
        """
        pause = Pause()
        while not self.done(stage):
            pause.after(self.progress())
        self.follow(stage)

    @noticing
    def free(self) -> None:
        """Free the lanes' communicators and plans. Collective.

        Raise ArgumentError on all ranks, and free nothing, where a rank has a stage under way or ready to begin.
        """
        for rank, stage in enumerate(self._comm.comm.allgather(self._first_not_done())):
            if stage is not None:
                raise ArgumentError(f"stage {stage} is under way on rank {rank}; wait for it before free")
        for lane in self._lanes:
            lane.free()
        self._lanes, self._plans, self._begun = [], [], 0

    def _may_begin(self) -> bool:
        """Return whether the next stage is ready and its lane free."""
        stage, lanes = self._begun, len(self._lanes)
        if stage == len(self._plans) or not self._ready[stage]:
            return False
        return all(other % lanes != stage % lanes for other in self._under_way)

    def _first_open(self) -> int:
        """Return the first stage that has not ended."""
        return min([*self._under_way, self._begun])

    def _first_not_done(self) -> int | None:
        """Return the first stage that is under way or ready to begin."""
        ready = (stage for stage in range(self._begun, len(self._plans)) if self._ready[stage])
        return min([*self._under_way, *ready], default=None)

    def _check(self, stage: int) -> None:
        """Raise ArgumentError for an unknown stage."""
        if not 0 <= stage < len(self._plans):
            raise ArgumentError(f"stage {stage} is not one of {len(self._plans)}")
