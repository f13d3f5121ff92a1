"""Snapshots: a solver's weights and state, saved so that a run continues from them with the same bits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from scaffe.blob import on_host
from scaffe.blobs.finite import check_history
from scaffe.devices.choices import Choices
from scaffe.errors import WeightsError
from scaffe.files import plan_file, snapshot, weights
from scaffe.files.atomic import write_atomically
from scaffe.files.prefix_lock import PrefixLock
from scaffe.files.states import Origin
from scaffe.layers.base_data import BaseData
from scaffe.layers.hdf5_data import FILES
from scaffe.monitor.log import log
from scaffe.monitor.record import RANKS
from scaffe.net.net import Net
from scaffe.parallel.residuals import Residuals
from scaffe.parallel.world import World
from scaffe.proto import ReaderPosition, SolverParameter, SolverState, checksums
from scaffe.solvers import lr_policy
from scaffe.solvers.rule import Rule
from scaffe.training.shared_history import RuleHistory
from scaffe.training.snapshot_writer import Copies, SnapshotWriter

INSTANCES = "instances "  # begins the lines of a plan about instances


class Progress(NamedTuple):
    """How far a run has come: iterations, tests of all nets, their seed; its last state's origin."""

    iter: int
    tests_done: int
    seed: int
    origin: Origin = Origin()


class Content(NamedTuple):
    """A snapshot to be written: its files' paths, the state without arrays, the flat history and residual, and the net.

    The paths count from `folder`, the program's when the snapshot was taken; "" for one that is written at once.
    """

    model: str
    path: str
    state: SolverState
    history: list[np.ndarray]
    residual: list[np.ndarray]
    net: weights.NetContent
    folder: str = ""

    def at(self, path: str) -> str:
        """Return a path that stays what it is, though the program changes its folder."""
        return os.path.join(self.folder, path)


@dataclass(frozen=True)
class Snapshots:
    """Saves and restores what a run needs to continue: nets, history of the update rule, kernels and instances chosen.

    `train_nets` are those of this rank's instances, and so is each of `test_nets`. `history` is the rule's, wherever
    it is, and `residuals` what is still to be added to gradients; `collect()` precedes what saves. `keep` is the number
    of the run's newest snapshots that stay; 0 keeps all. `lock` is the lock of the prefix. `instances` is
    AutoInstances.kept.
    """

    param: SolverParameter
    world: World
    train_nets: Sequence[Net]
    test_nets: Sequence[Sequence[Net]]
    rule: Rule
    history: RuleHistory
    residuals: Residuals
    choices: Choices
    lock: PrefixLock
    keep: int = 0
    instances: dict[str, str] = field(default_factory=dict)
    writer: SnapshotWriter = field(default_factory=SnapshotWriter)
    copies: Copies = field(default_factory=Copies)

    def collect(self) -> None:
        """Bring to the root what `save` writes and other ranks have. Collective."""
        self.history.now.collect()
        self.residuals.collect()

    def save(self, progress: Progress) -> str:
        """Write the two files, remove older snapshots beyond `keep`, and return the state's path. On the root alone."""
        self.writer.finish()
        self.lock.take()
        content = self._content(progress, np.asarray)
        self._write(content)
        return content.path

    def save_later(self, progress: Progress) -> str:
        """Copy all that `save` writes, and write it while training goes on; return the state's path. On the root alone.

        Wait for the former snapshot, and raise the error that it failed with.
        """
        self.writer.finish()
        self.lock.take()
        self.copies.begin()
        content = self._content(progress, self.copies.take)
        if not os.path.isabs(content.path):
            content = content._replace(folder=os.getcwd())
        self.writer.start(lambda: self._write(content))
        return content.path

    def paths(self, iteration: int) -> tuple[str, str]:
        """Return the paths of the weights and of the state of a snapshot after so many iterations."""
        stem, suffix = f"{self.param.snapshot_prefix}_iter_{iteration}", self._format.suffix
        return f"{stem}.caffemodel{suffix}", f"{stem}.solverstate{suffix}"

    def _content(self, progress: Progress, take: Callable[[np.ndarray], np.ndarray]) -> Content:
        """Return what the files hold; `take` returns the arrays, or copies of them."""
        model, path = self.paths(progress.iter)
        net = self._weights(take)
        history = self.history.now.whole(take)
        state = self.state(progress, model)
        state.run, state.order = progress.origin
        kept = self.residuals.kept  # which is replaced, never changed
        return Content(model, path, state, history, [] if kept is None else [kept], net)

    def _weights(self, take: Callable[[np.ndarray], np.ndarray]) -> weights.NetContent:
        """Return what a file of the weights holds, with the transforms of all nets."""
        net = weights.content(self.net, self.param.snapshot_diff, take)
        return net._replace(
            transforms=[one for name, (first, *_) in self._nets() for one in first.own_transforms(name)]
        )

    def save_best(self, path: str) -> str:
        """Write the weights alone, in place of those there; return their path. On the root alone."""
        self.lock.take()
        weights.write(self._weights(np.asarray), path, self.param.snapshot_diff)
        return path

    def _write(self, content: Content) -> None:
        check_history(self.net.packed, content.history)
        log.info("Snapshotting to %s file %s", self._format.name, content.model)
        written = weights.write(content.net, content.at(content.model), self.param.snapshot_diff)
        content.state.weights_checksum = checksums.digits(written)
        log.info("Snapshotting solver state to %s file %s", self._format.name, content.path)
        arrays = self._shaped(content.history), self._shaped(content.residual)
        write_atomically(content.at(content.path), self._format.encode(content.state, *arrays))
        if self.keep:
            snapshot.prune(content.at(self.param.snapshot_prefix), content.state.run, self.keep)

    @property
    def _format(self) -> snapshot.Format:
        return snapshot.FORMATS[self.param.snapshot_format]

    def newest(self, run: int) -> str | None:
        """Return the state of a run's newest whole snapshot, once none is under way. On the root alone."""
        self.writer.join()
        return snapshot.newest(self.param.snapshot_prefix, run)

    def restore(self, path: str | os.PathLike[str], seed: int) -> tuple[Progress, str] | None:
        """Load a snapshot, or the newest whole one for the path "auto"; None if there is none. Collective.

        Return the progress, and the state's path. The root reads the files; its weights and history are restored, the
        positions of data layers on all ranks. Where every rank updates, call `share_history` next.
        `seed` counts where the state has none, as Caffe's. Raise, on all ranks, WeightsError or
        PrototxtError for files of another net or solver, SnapshotError where "auto" finds snapshots but no whole one.
        """
        restored = self.world.on_root(lambda: self._restore_root(os.fspath(path)))
        if restored is None:
            log.info("No snapshot of %s: starting anew", self.param.snapshot_prefix)
            return None
        source, state = restored
        log.info("Restored iteration %d from %s", state.iter, source)
        seed = state.random_seed if state.HasField("random_seed") else seed
        self.restore_positions(state, seed)
        self._restore_plan(self.world.together(lambda: plan_file.parse(state.plan, source)))
        return Progress(state.iter, 0, seed, Origin(state.run, state.order)), source

    @property
    def net(self) -> Net:
        """The train net of the first instance, whose parameters are those of all."""
        return self.train_nets[0]

    def _nets(self) -> list[tuple[str, Sequence[Net]]]:
        """Return the nets by name; those of one name read the same samples, divided over them."""
        return [("train", self.train_nets), *((f"test {k}", nets) for k, nets in enumerate(self.test_nets))]

    def state(self, progress: Progress, model: str = "") -> SolverState:
        """Return the solver state, without its history, that goes with the weights in the file `model`."""
        step = lr_policy.current_step(self.param, progress.iter)
        state = SolverState(iter=progress.iter, learned_net=model, current_step=step)
        state.random_seed = progress.seed
        state.solver_type = self.rule.kind
        state.plan.extend([*self.choices.lines(), *(f"{work}: {way}" for work, way in self.instances.items())])
        for name, (net, *_) in self._nets():
            for layer in net.data_layers():
                samples, records = self._position(net, layer, progress.tests_done), layer.records
                state.position.add(net=name, layer=layer.label, samples=samples, records=records, shuffle=layer.shuffle)
        return state

    def _shaped(self, history: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return a history in the parameters' shapes: all of its first slot, then all of the second."""
        packed = self.net.packed
        return [packed.view(flat, i) for flat in history for i in range(len(packed.parameters))]

    def _position(self, net: Net, layer: BaseData, tests_done: int) -> int:
        """Return how many samples a data layer has consumed over all ranks."""
        if net is self.net:
            return layer.position
        k = next(k for k, nets in enumerate(self.test_nets) if nets[0] is net)
        return layer.first + tests_done * self.param.test_iter[k] * layer.samples_per_batch

    def _shapes(self) -> snapshot.Shapes:
        history = [parameter.blob.shape for parameter in self.net.packed.parameters] * len(self.rule.history)
        return snapshot.Shapes(history, weights.shapes(self.net))

    def _restore_root(self, path: str) -> tuple[str, SolverState] | None:
        """Load history and weights on the root; return the state's path, and the state without its history."""
        shapes = self._shapes()
        if path == "auto":
            stored = snapshot.read_newest(self.param.snapshot_prefix, shapes)
        else:
            stored = snapshot.read(path, shapes, strict=False)
        if stored is None:
            return None
        self._check(stored)
        self._restore_history(stored)
        del stored.state.history[:], stored.state.residual[:]
        return stored.path, stored.state

    def _check(self, stored: snapshot.Stored) -> None:
        """Raise WeightsError for the state of another type of solver, or of another net."""
        state, kind = stored.state, self.rule.kind
        if state.HasField("solver_type") and state.solver_type != kind:
            found = state.solver_type
            raise WeightsError(f"{stored.path}: the state of a solver of type {found}; this one's is {kind}")
        expected = len(self.net.packed.parameters) * len(self.rule.history)
        if len(state.history) != expected:
            raise WeightsError(
                f"{stored.path}: {len(state.history)} history blobs, but {kind} with this net has {expected}: "
                "it is the state of another solver type or net"
            )

    def _restore_history(self, stored: snapshot.Stored) -> None:
        """Load the weights and the history; both are checked before either changes."""
        packed, history = self.net.packed, self.history.now.room()
        values = [
            weights.from_proto(proto, parameter.blob.shape, f"{stored.path}: history of {parameter.label}")
            for proto, parameter in zip(stored.state.history, packed.parameters * len(history), strict=True)
        ]
        residual = self._residual(stored)
        weights.copy(self.net, stored.net, stored.model)
        self.residuals.kept = residual
        for k, value in enumerate(values):
            flat, i = history[k // len(packed.parameters)], k % len(packed.parameters)
            packed.view(flat, i)[...] = value if isinstance(flat, np.ndarray) else self.net.context.xp.asarray(value)

    def _residual(self, stored: snapshot.Stored) -> np.ndarray | None:
        """Return what is still to be added to gradients, None for nothing. Raise WeightsError for another net's."""
        packed = self.net.packed
        if not stored.state.residual:
            return None
        if len(stored.state.residual) != len(packed.parameters):
            found = len(stored.state.residual)
            raise WeightsError(f"{stored.path}: {found} residual blobs, for {len(packed.parameters)} parameters")
        kept = np.zeros(packed.nbytes // 4, np.float32)
        for i, (proto, parameter) in enumerate(zip(stored.state.residual, packed.parameters, strict=True)):
            where = f"{stored.path}: residual of {parameter.label}"
            packed.view(kept, i)[...] = weights.from_proto(proto, parameter.blob.shape, where)
        return kept

    def share_history(self) -> None:
        """Give all ranks the root's history, where every rank updates its own parameters. Collective."""
        for flat in self.rule.history:
            values = on_host(flat)
            with self.world.record.waiting(RANKS):
                self.world.comm.Bcast(values, self.world.root)
            flat[...] = self.net.context.xp.asarray(values)

    def _restore_plan(self, plan: dict[str, str]) -> None:
        """Make the engine compute with the same kernels, and so with the same bits; note the instances."""
        for work, way in plan.items():
            taken = self.instances if work.startswith(INSTANCES) else self.choices.taken
            taken[work] = way
        for net in (net for _, nets in self._nets() for net in nets):
            net.replan()

    def restore_positions(self, state: SolverState, seed: int) -> None:
        """Move data layers to their next samples. A state of Caffe's has no positions: they follow from iterations."""
        stored = {(position.net, position.layer): position for position in state.position}
        passes = state.iter * self.param.iter_size
        for name, net, first in ((name, net, nets[0]) for name, nets in self._nets() for net in nets):
            net.context.seed = seed
            if name == "train":
                net.context.batch_number = passes
            for layer in net.data_layers():
                position = stored.get((name, layer.label))
                counted = passes * layer.samples_per_batch if name == "train" else 0
                layer.seek(position.samples if position else counted)
                if position and self.world.is_root and net is first:
                    _compare(layer, name, position)


def _compare(layer: BaseData, net: str, position: ReaderPosition) -> None:
    """Warn where a data layer reads other records than before the snapshot, or in another order."""
    where = f"{net} net, layer '{layer.label}': the snapshot was taken"
    changed = "some samples of this epoch come twice, others not at all"
    if position.records and layer.records and position.records != layer.records:
        text = "%s with %d records, the source now has %d: %s; give the old source to go on exactly"
        log.warning(text, where, position.records, layer.records, changed)
    if position.HasField("shuffle") and position.shuffle != layer.shuffle:
        text = "%s with shuffle '%s', this run has '%s': %s; %s to go on exactly"
        remedy = "set the layer's shuffle" if position.shuffle == FILES else f"give --shuffle {position.shuffle}"
        log.warning(text, where, position.shuffle, layer.shuffle, changed, remedy)
