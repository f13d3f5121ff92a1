"""Staged collectives: one for each of several arrays, advancing side by side while the rank computes.

    staged = Staged(comm, "reduce", layers)     # makes the plans once
    staged.start()                              # each iteration
    staged.ready(3)                             # any thread: layer 3's gradients are complete
    staged.progress()                           # one thread, now and then: advances every stage that can
    staged.wait(0)                              # the same thread: until layer 0's sum is complete

S-Caffe propagates parameters under the forward pass, and aggregates gradients under the backward pass, in this way
(sections 4.2 and 4.3). Non-blocking collectives advance only while their process is inside MPI: `progress` is the way
in. Whoever waits, for stages or for a plan that was started, advances all that is under way in the process: ranks may
wait for several `Staged` in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from collectives.arguments import INTEGERS, attempt, check_apart, check_verb, is_array, is_same, shown, whole
from collectives.errors import ArgumentError, CollectiveError, DeviceFault
from collectives.loss import raises_rank_lost
from collectives.verbs import SCHEDULED, VERBS, Verb, even_bounds

if TYPE_CHECKING:
    from collectives.communicator import Communicator

LANES = 2  # stages under way at once: one fills the pipeline while the one before it drains
HOW = ("algorithm", "chain_size", "chunk_bytes", "check", "numbers")


class Staged:
    """The collective `what`, the name of a verb with schedules, of each of `arrays`, the stages, any number of times.

    Stages begin in the order of `arrays`, the same on all ranks, each once it is ready on this rank. At most `lanes`
    are under way at a time. Making the object is collective, and so is `free`. Any thread may call `ready` and
    `follow`; one thread calls the rest. Several threads may wait, each for a `Staged` of its own, if MPI's thread level
    is MPI_THREAD_SERIALIZED or above: their calls of MPI take turns.

    - `comm`: the Communicator; each lane is a `dup` of it.
    - `arrays`: no two share memory, unless both are only read.
    - `recv`: as many arrays, which take the results; without them the results replace the contributions.
    - `root`: the root's rank, or a list with the root of each stage.
    - `counts`: None, or a list with the `counts` of each stage.
    - `op`, `how`: as in `Communicator.reduce`. "auto" leaves out the MPI library's own collectives: they
      advance one segment per poll, which is slow while a rank computes.

    `on_end`, if set, is called as `on_end(stage, begin, end)` when a stage ends on this rank, in seconds of the
    communicator's clock. `names`, if set, are the names of the stages in errors. Raise as `Communicator` does.
    """

    on_end: Callable[[int, float, float], object] | None = None
    names: Sequence[str] = ()
    failure: Exception | None = None  # of an advance by a wait for something else

    @raises_rank_lost
    def __init__(
        self,
        comm: Communicator,
        what: str,
        arrays: Sequence[np.ndarray],
        recv: Sequence[np.ndarray] | None = None,
        op: str = "sum",
        root: int | Sequence[int] = 0,
        lanes: int = LANES,
        counts: Sequence[Sequence[int] | None] | None = None,
        **how: object,
    ):
        given, error = attempt(lambda: _stages(what, arrays, recv, root, lanes, counts, how))
        stages, lanes = given or ([], 1)
        error = error or attempt(lambda: _check_stages(what, stages, comm.rank, comm.size))[1]
        self._comm, self._now, self._progress = comm, comm.now, comm.progress
        comm.agree({"the number of stages": str(len(stages)), "the number of lanes": str(lanes)}, error)
        self._lanes = [comm.dup() for _ in range(min(lanes, len(stages)))]
        try:
            self._plans = [
                self._lanes[i % lanes].plan(
                    what,
                    one.send,
                    one.recv,
                    op,
                    one.root,
                    number=i,
                    staged=True,
                    counts=one.counts,
                    **how,  # type: ignore
                )
                for i, one in enumerate(stages)
            ]
        except CollectiveError as found:
            if found.alike:
                self._free_lanes()
            raise
        self._ready = [False] * len(self._plans)
        self._freed = False
        self._begun = len(self._plans)  # stages below this have begun
        self._under_way: list[int] = []
        self._begins = [0.0] * len(self._plans)
        self._busy, self._busy_since = 0.0, 0.0

    def __len__(self) -> int:
        """Return the number of stages."""
        return len(self._plans)

    def start(self, ready: bool = False) -> None:
        """Begin anew: no stage is complete, and none is ready unless `ready`, which makes all ready. Calls no MPI.

        Raise ArgumentError while a stage of the last round is not complete, and once it is freed.
        """
        if self._freed:
            raise ArgumentError("this Staged has been freed; make another")
        if not self.done():
            raise ArgumentError(f"stage {self._first_open()} has not been completed since the last start; wait for it")
        if ready:
            for plan in self._plans:
                plan.mark()
        self._ready = [ready] * len(self._plans)
        self._begun = 0
        self._progress.add(self)

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
        if stage is not None:
            self._check(stage)
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
        return self._progress.step(self, self._advance)

    def _advance(self) -> bool:
        """Advance the stages under way, and begin those that may; return whether any did."""
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
        if self.done():
            self._progress.drop(self)
        return moved

    def _name_fault(self, stage: int, step: Callable[[], Any]) -> Any:
        """Return the result of a stage's `step`; a DeviceFault names the stage."""
        try:
            return step()
        except DeviceFault as error:
            raise error.located(self.names[stage] if self.names else f"stage {stage}") from None

    def _begin(self, stage: int) -> None:
        """Start a stage."""
        self._begins[stage] = now = self._now()
        if not self._under_way:
            self._busy_since = now
        self._under_way.append(stage)  # first: other threads call `done`
        self._begun += 1
        self._name_fault(stage, self._plans[stage].begin)

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

        Meanwhile all else advances that is under way in this process, but for blocking collectives. Another thread must
        make stages ready that are not yet ready. Raise ArgumentError in a thread that may not call MPI.
        """
        if not self.done(stage):
            self._progress.wait_until(partial(self.done, stage), self)
        self.follow(stage)

    def give_lost(self, stage: int, vector: np.ndarray) -> None:
        """Add what rounding a stage's messages has lost on this rank to a vector, as Plan.give_lost does."""
        self._check(stage)
        self._plans[stage].give_lost(vector)

    @raises_rank_lost
    def free(self) -> None:
        """Free the lanes' communicators and plans. Collective.

        Raise ArgumentError on all ranks, and free nothing, where a rank has a stage under way or ready to begin.
        """
        for rank, stage in enumerate(self._comm.comm.allgather(self._first_not_done())):
            if stage is not None:
                raise ArgumentError(f"stage {stage} is under way on rank {rank}; wait for it before free")
        self._progress.drop(self)
        self._free_lanes()
        self._plans, self._begun, self._freed = [], 0, True

    def _free_lanes(self) -> None:
        """Free the lanes' communicators. Collective."""
        for lane in self._lanes:
            lane.free()
        self._lanes = []

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
        if not isinstance(stage, INTEGERS) or not 0 <= stage < len(self._plans):
            raise ArgumentError(f"stage {shown(stage)} is not one of {len(self._plans)}")


class _Stage(NamedTuple):
    """The arguments of a stage's collective."""

    send: Any
    recv: Any
    root: Any
    counts: Any


def _stages(
    what: Any, arrays: Any, recv: Any, root: Any, lanes: Any, counts: Any, how: dict[str, Any]
) -> tuple[list[_Stage], int]:
    """Return the arguments of each stage, and the number of lanes. Raise ArgumentError."""
    if unknown := sorted(how.keys() - {*HOW}):
        raise ArgumentError(f"unknown argument '{unknown[0]}'; known besides Staged's own are {', '.join(HOW)}")
    check_verb(what)
    if not VERBS[what].is_scheduled:
        raise ArgumentError(f"Staged has no {what}; it has {', '.join(SCHEDULED)}")
    lanes = whole("lanes", lanes, 1)
    if not isinstance(arrays, Sequence | np.ndarray) or isinstance(arrays, str | bytes):
        raise ArgumentError(f"arrays must be a list of arrays, got {shown(arrays)}")
    each = _of_each("recv", recv, len(arrays)), _roots(root, len(arrays)), _of_each("counts", counts, len(arrays))
    return [_Stage(*stage) for stage in zip(arrays, *each, strict=True)], lanes


def _of_each(name: str, given: Any, count: int) -> Sequence[Any]:
    """Return an argument of each stage. Raise ArgumentError for a list of another length."""
    if given is None:
        return [None] * count
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str | bytes):
        raise ArgumentError(f"{name} must be a list of arrays, got {shown(given)}")
    if len(given) != count:
        raise ArgumentError(f"{name} has {len(given)} arrays, for {count} stages")
    return list(given)


def _roots(root: Any, count: int) -> Sequence[Any]:
    """Return the root of each stage. Raise ArgumentError for a list of another length."""
    if not isinstance(root, list | tuple):
        return [root] * count
    if len(root) != count:
        raise ArgumentError(f"root has {len(root)} ranks, for {count} stages")
    return root


def _check_stages(what: Any, stages: list[_Stage], rank: int, size: int) -> None:
    """Raise ArgumentError where a stage on this rank writes what another uses. `plan` checks the rest."""
    used = [one for i, stage in enumerate(stages) for one in _used(f"stage {i}", VERBS[what], stage, rank, size)]
    check_apart([one for one in used if is_array(one[1])])


def _used(name: str, verb: Verb, stage: _Stage, rank: int, size: int) -> list[tuple[str, Any, bool]]:
    """Return the arrays that a stage uses, with their names, and whether it writes them."""
    given, root = even_bounds(size, size), int(stage.root) if isinstance(stage.root, INTEGERS) else -1
    gets, brings = (part != (0, 0) for part in (verb.result(rank, root, given), verb.contribution(rank, root, given)))
    writes = gets and not (brings and not verb.joins and not verb.has_blocks)
    if not writes or stage.recv is None or is_same(stage.send, stage.recv):
        return [(name, stage.send, writes)]
    return [(name, stage.send, False), (f"recv of {name}", stage.recv, True)]
