"""StateTransfer: what the nets of a solver hand on to nets that take their place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol
from weakref import WeakSet

import numpy as np

from scaffe.blob import on_host
from scaffe.files.states import Origin
from scaffe.monitor.record import RANKS
from scaffe.net.net import Net
from scaffe.parallel.world import World
from scaffe.solvers.rule import Rule
from scaffe.training.bad_records import BadRecords
from scaffe.training.job import Job
from scaffe.training.losses import Losses
from scaffe.training.snapshots import Snapshots
from scaffe.training.update import Update


class HasNets(Protocol):
    """The parts of a solver, as far as its nets and what belongs to them."""

    job: Job
    nets: list[Net]
    tests: list[list[Net]]
    replaced: WeakSet[Net]
    snapshots: Snapshots
    losses: Losses
    bad_records: BadRecords
    update: Update

    @property
    def rule(self) -> Rule:
        """The update rule."""


class StateTransfer:
    """All that later iterations depend on, for a solver whose nets, rule and workflows are built anew.

    It is what a snapshot keeps, in memory, and what the solver's user sees: losses, counts of records, and what is
    kept of blobs. Made before the nets are given up; all ranks have the root's parameters then. Neither parameters nor
    history are copied: the old net computes no more, and the old rule updates no more.
    """

    def __init__(self, parts: HasNets):
        self._nets = [parts.nets, *parts.tests]  # of each net those of the instances
        self._values: np.ndarray | None = None  # to hand on in place of the old net's
        self.history = [on_host(flat) for flat in parts.rule.history]
        self.buckets = parts.update.history.buckets  # whose owners have it
        self._positions = parts.snapshots.state(parts.job.progress()._replace(origin=Origin()))
        self.batch_number = parts.nets[0].context.batch_number
        self._writer = parts.snapshots.writer
        self._losses, self._bad_records = parts.losses, parts.bad_records

    def drop_history(self) -> None:
        """Hand on no history: ranks owned parts of it, and some are lost."""
        self.history, self.buckets = [], []

    def share(self, world: World, source: int, is_everywhere: bool, counts: bool = True) -> None:
        """Give all ranks the positions of one of them, and its parameters and history unless they are everywhere.

        Collective. What a rank had is overwritten only if it no longer `counts`, since a loss may break this off.
        """
        if not is_everywhere:
            arrays = [self.values, *self.history]
            if world.rank != source and counts:
                arrays = [np.empty_like(array) for array in arrays]
            for array in arrays:
                with world.record.waiting(RANKS):
                    world.comm.Bcast(array, source)
            if world.rank != source:
                self.take(*arrays)
        self._positions, self.batch_number = world.bcast((self._positions, self.batch_number), source)

    @property
    def values(self) -> np.ndarray:
        """The parameters to hand on, on the host: the old net's, wherever these lie, or those that were taken."""
        return self._nets[0][0].packed.host_data() if self._values is None else self._values

    @property
    def layers(self) -> Collection[str]:
        """The layers whose parameters are handed on."""
        return list(self._nets[0][0].params)

    @property
    def samples(self) -> list[int]:
        """Where the train net goes on: the sample of each data layer."""
        return [one.samples for one in self._positions.position if one.net == "train"]

    def take(self, values: np.ndarray, *history: np.ndarray) -> None:
        """Hand these on, for `share`, in place of this rank's parameters and history. They stay the caller's."""
        self._values, self.history = values, list(history)

    def move(self, samples: Sequence[int], batch_number: int) -> None:
        """Make the train net go on at these samples, one for each data layer, and at this batch."""
        self.batch_number = batch_number
        train = (one for one in self._positions.position if one.net == "train")
        for position, sample in zip(train, samples, strict=True):
            position.samples = sample

    def give(self, parts: HasNets) -> None:
        """Hand it on to the new nets, without communication. Old nets that a user holds share their parameters.

        So do a user's own nets that shared those of the old nets. The rule has taken the history as it was built.
        """
        net = parts.nets[0]
        net.packed.set_data(self.values)
        parts.snapshots.restore_positions(self._positions, parts.job.seed)
        parts.snapshots.writer.follow(self._writer)
        parts.job.tests_done = 0  # counted from those positions
        net.context.batch_number = self.batch_number  # the other instances follow in Parts.plan
        parts.losses.last, parts.losses.requests = self._losses.last, self._losses.requests
        parts.bad_records.follow(self._bad_records)
        for nets, others in zip(self._nets, [parts.nets, *parts.tests], strict=True):
            for old, new in zip(nets, others, strict=False):  # there may be more instances now, or fewer
                new.keep_data, new.keep_diffs = old.keep_data, old.keep_diffs
                new.take_callbacks(old)
            parts.replaced.update(nets)
        for old in parts.replaced:
            with old.held:
                old.sharing.follow(net.sharing)
