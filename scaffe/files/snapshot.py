"""Snapshots: weights and solver state, written so that a run can go on from them to the bit.

PREFIX_iter_N.caffemodel is written first, PREFIX_iter_N.solverstate last: a snapshot whose state is there is
complete. Both are Caffe's files, binary or, with .h5 at the end of their names, HDF5; the state also holds, in fields
that Caffe skips, the seed, the solver type, the plan of computing and where each data layer stands.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable
from glob import escape, glob
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from readers.files import TEMPORARY
from scaffe.atomic import write_atomically
from scaffe.blob import on_host
from scaffe.choices import parse
from scaffe.errors import PrototxtError, SnapshotError, WeightsError
from scaffe.files import weights
from scaffe.files.prefix_lock import PrefixLock
from scaffe.finite import check_history
from scaffe.layers.hdf5_data import FILES
from scaffe.monitor.log import log
from scaffe.proto import NetParameter, ReaderPosition, SolverParameter, SolverState, blobs, hdf5
from scaffe.proto.files import read_solver_state, read_weights
from scaffe.solvers import lr_policy

if TYPE_CHECKING:
    from scaffe.layers.base_data import BaseData
    from scaffe.net import Net
    from scaffe.training.solver import Solver


class Format(NamedTuple):
    """How a snapshot is written: what the log calls it, what its names end with, and the state's file."""

    name: str
    suffix: str
    encode: Callable[[SolverState, Iterable[np.ndarray]], bytes]


def _encode_binary(state: SolverState, history: Iterable[np.ndarray]) -> bytes:
    fields = [blobs.field(SolverState.HISTORY_FIELD_NUMBER, blobs.encode_checked(values)) for values in history]
    head = SolverState(iter=state.iter, sealed=True)  # first, so that what is cut off behind it is missed
    parts = [head.SerializeToString(), state.SerializeToString(), *fields]
    return blobs.sealed(parts, SolverState.CHECKSUM_FIELD_NUMBER)


_FORMATS = {
    SolverParameter.BINARYPROTO: Format("binary proto", "", _encode_binary),
    SolverParameter.HDF5: Format("HDF5", ".h5", hdf5.encode_solver_state),
}


def check_writable(param: SolverParameter) -> None:
    """Raise SnapshotError now, not hours later, if h5py is missing or the snapshots' files can't be written."""
    if param.snapshot_format == SolverParameter.HDF5:
        hdf5.library()
    if not (param.snapshot or param.snapshot_after_train):
        return
    folder = os.path.dirname(param.snapshot_prefix) or "."
    if not os.path.isdir(folder):
        raise SnapshotError(f"snapshot_prefix '{param.snapshot_prefix}': no such folder: {folder}")
    if not os.access(folder, os.W_OK):
        raise SnapshotError(f"snapshot_prefix '{param.snapshot_prefix}': no permission to write in {folder}")


def lock(prefix: str) -> PrefixLock:
    """Return the lock of a prefix; with it, what runs that were killed left of its files is removed."""
    return PrefixLock(prefix, lambda: _remove_unfinished(prefix))


def _remove_unfinished(prefix: str) -> None:
    """Remove files that were never finished: whoever holds the prefix's lock knows that nobody is writing them."""
    name = re.compile(re.escape(os.path.basename(prefix)) + _FILE + TEMPORARY)
    folder = os.path.dirname(prefix) or "."
    for found in filter(name.fullmatch, os.listdir(folder)):
        log.info("Removing %s, which was never finished", os.path.join(folder, found))
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, found))


def save(solver: Solver) -> str:
    """Write the two files, remove snapshots beyond keep_snapshots, and return the state's path. The root's work."""
    check_history(solver.net.packed, solver.rule.history)
    solver.lock.take()
    form = _FORMATS[solver.param.snapshot_format]
    stem = f"{solver.param.snapshot_prefix}_iter_{solver.iter}"
    model, state = f"{stem}.caffemodel{form.suffix}", f"{stem}.solverstate{form.suffix}"
    log.info("Snapshotting to %s file %s", form.name, model)
    weights.save(solver.net, model, diffs=solver.param.snapshot_diff)
    log.info("Snapshotting solver state to %s file %s", form.name, state)
    write_atomically(state, form.encode(_state(solver, model), _history(solver)))
    if solver.keep_snapshots:
        _prune(state, solver.param.snapshot_prefix, solver.keep_snapshots)
    return state


def _state(solver: Solver, model: str) -> SolverState:
    """Return the solver state, without its history, that goes with the weights in the file `model`."""
    step = lr_policy.current_step(solver.param, solver.iter)
    state = SolverState(iter=solver.iter, learned_net=model, current_step=step)
    state.random_seed = solver.seed
    state.solver_type = solver.rule.kind
    state.plan.extend(solver.choices.lines())
    for name, net in _nets(solver):
        for layer in net.data_layers():
            samples, records = _position(solver, net, layer), layer.records
            state.position.add(net=name, layer=layer.name, samples=samples, records=records, shuffle=layer.shuffle)
    return state


def _history(solver: Solver) -> list[np.ndarray]:
    """Return the rule's history in the parameters' shapes: all of its first slot, then all of the second."""
    packed = solver.net.packed
    return [packed.view(on_host(flat), i) for flat in solver.rule.history for i in range(len(packed.parameters))]


def _nets(solver: Solver) -> list[tuple[str, Net]]:
    return [("train", solver.net), *((f"test {k}", net) for k, net in enumerate(solver.test_nets))]


def _position(solver: Solver, net: Net, layer) -> int:
    """Return how many samples a data layer has consumed over all ranks."""
    if net is solver.net:
        return layer.position
    batches = solver.tests_done * solver.param.test_iter[solver.test_nets.index(net)]
    return layer.first + batches * layer.samples_per_batch


def restore(solver: Solver, path: str | os.PathLike) -> None:
    """Bring a solver on all ranks to where a snapshot was taken. Collective.

    The root reads the files. Raise, on all ranks, WeightsError or PrototxtError for files that don't belong here,
    SnapshotError where "auto" finds snapshots of which none is whole: a new run would write over them.
    """
    restored = solver.world.on_root(lambda: _restore_root(solver, os.fspath(path)))
    if restored is None:
        log.info("No snapshot of %s: starting anew", solver.param.snapshot_prefix)
        return
    source, state = restored
    log.info("Restored iteration %d from %s", state.iter, source)
    solver.iter = state.iter
    solver.propagate.changed()
    if state.HasField("random_seed"):
        solver.seed = state.random_seed
    _restore_positions(solver, state)
    _restore_plan(solver, solver.world.together(lambda: parse(state.plan, source)))


def _restore_plan(solver: Solver, plan: dict[str, str]) -> None:
    """Let the engine compute as it did: to the bit."""
    solver.choices.taken |= plan
    for _, net in _nets(solver):
        net.replan()


class Stored(NamedTuple):
    """A snapshot as it was read: the paths of its files, and what is in them."""

    path: str
    state: SolverState
    model: str
    net: NetParameter


def _read(path: str, solver: Solver | None = None) -> Stored:
    """Read a snapshot by its state's path, of a solver's values those that fit its net.

    Raise PrototxtError, WeightsError or SnapshotError where it isn't whole.
    """
    state = read_solver_state(path, _history_shapes(solver) if solver else None)
    model = _model_of(state, path)
    return Stored(path, state, model, read_weights(model, weights.shapes(solver.net) if solver else None))


def _history_shapes(solver: Solver) -> list[tuple[int, ...]]:
    return [parameter.blob.shape for parameter in solver.net.packed.parameters] * len(solver.rule.history)


def _restore_root(solver: Solver, path: str) -> tuple[str, SolverState] | None:
    """Load history and weights on the root; return the state's path, and the state without its history."""
    stored = _newest(solver.param.snapshot_prefix, solver) if path == "auto" else _read(path, solver)
    if stored is None:
        return None
    path, state = stored.path, stored.state
    _check_type(solver, state, path)
    packed, history = solver.net.packed, solver.rule.history
    expected = len(packed.parameters) * len(history)
    if len(state.history) != expected:
        raise WeightsError(
            f"{path}: {len(state.history)} history blobs, but {solver.rule.kind} with this net has {expected}: "
            "it is the state of another solver type or net"
        )
    values = [
        weights.from_proto(proto, parameter.blob.shape, f"{path}: history of {parameter.label}")
        for proto, parameter in zip(state.history, packed.parameters * len(history), strict=True)
    ]
    weights.copy(solver.net, stored.net, stored.model)
    for k, value in enumerate(values):
        flat, i = history[k // len(packed.parameters)], k % len(packed.parameters)
        packed.view(flat, i)[...] = solver.net.context.xp.asarray(value)
    del state.history[:]
    return path, state


def _check_type(solver: Solver, state: SolverState, path: str) -> None:
    if state.HasField("solver_type") and state.solver_type != solver.rule.kind:
        raise WeightsError(
            f"{path}: the state of a solver of type {state.solver_type}; this one's is {solver.rule.kind}"
        )


def _model_of(state: SolverState, path: str) -> str:
    """Return where the weights are that belong to a state: as it says, or beside it."""
    stored = os.fsdecode(state.learned_net)  # bytes where they are no UTF-8
    beside = os.path.join(os.path.dirname(path), os.path.basename(stored))
    for model in (beside, stored):
        if os.path.isfile(model):
            return model
    raise SnapshotError(f"{path}: its weights '{stored}' are missing, also beside it")


def _restore_positions(solver: Solver, state: SolverState) -> None:
    """Let data layers go on at the next sample; a state of Caffe's has no positions, so count them."""
    stored = {(position.net, position.layer): position for position in state.position}
    passes = state.iter * solver.param.iter_size
    solver.net.context.batch_number = passes
    solver.tests_done = 0
    for name, net in _nets(solver):
        net.context.seed = solver.seed
        for layer in net.data_layers():
            counted = passes * layer.samples_per_batch if net is solver.net else 0
            position = stored.get((name, layer.name))
            layer.seek(position.samples if position else counted)
            if position:
                _compare(layer, name, position, solver.world.is_root)


def _compare(layer: BaseData, net: str, position: ReaderPosition, tells: bool) -> None:
    """Warn where a data layer reads other records than before the snapshot, or in another order."""
    if not tells:
        return
    where = f"{net} net, layer '{layer.name}': the snapshot was taken"
    changed = "some samples of this epoch come twice, others not at all"
    if position.records and layer.records and position.records != layer.records:
        text = "%s with %d records, the source now has %d: %s; give the old source to go on exactly"
        log.warning(text, where, position.records, layer.records, changed)
    if position.HasField("shuffle") and position.shuffle != layer.shuffle:
        text = "%s with shuffle '%s', this run has '%s': %s; %s to go on exactly"
        remedy = "set the layer's shuffle" if position.shuffle == FILES else f"give --shuffle {position.shuffle}"
        log.warning(text, where, position.shuffle, layer.shuffle, changed, remedy)


_FILE = r"_iter_\d+\.(caffemodel|solverstate)(\.h5)?"
_STATE = re.compile(r"_iter_(\d+)\.solverstate(\.h5)?$")


def _iteration(state: str) -> int:
    found = _STATE.search(state)
    return int(found[1]) if found else -1


def _model_beside(state: str) -> str:
    return re.sub(r"\.solverstate(\.h5)?$", r".caffemodel\1", state)


def _states(prefix: str) -> list[str]:
    """Return a prefix's states, oldest first. They are written last, so each says that a snapshot was there."""
    found = glob(f"{escape(prefix)}_iter_*.solverstate*")
    return sorted((path for path in found if _iteration(path) >= 0), key=_iteration)


def complete(prefix: str) -> list[str]:
    """Return the states of a prefix's complete snapshots, oldest first."""
    return [path for path in _states(prefix) if os.path.isfile(_model_beside(path))]


def newest(prefix: str) -> str | None:
    """Return the state of the newest snapshot of which both files are whole, None if none is, or can be read here."""
    try:
        found = _newest(prefix)
    except SnapshotError:
        return None
    return found and found.path


def _newest(prefix: str, solver: Solver | None = None) -> Stored | None:
    """Read the newest snapshot of which both files are whole; None where there are no snapshots.

    Raise SnapshotError where none is whole, or where one is in HDF5 and h5py is missing: to start anew would be wrong.
    """
    states = _states(prefix)
    for path in reversed(states):
        if path.endswith(".h5"):
            hdf5.library()
        try:
            return _read(path, solver)
        except (PrototxtError, SnapshotError, WeightsError) as error:
            log.warning("Passing over a snapshot: %s", error)
    if states:
        raise SnapshotError(
            f"snapshot_prefix '{prefix}': there are snapshots, but none is whole (newest: {states[-1]}): "
            "copy one anew; or, to start anew, remove them or choose another snapshot_prefix"
        )
    return None


def _prune(state: str, prefix: str, keep: int) -> None:
    """Of `state` and the complete snapshots before it remove all but `keep`, each state before its weights."""
    older = [path for path in complete(prefix) if _iteration(path) < _iteration(state)]
    for path in [*older, state][:-keep]:
        log.info("Removing older snapshot %s", path)
        for name in (path, _model_beside(path)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
