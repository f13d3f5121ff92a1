"""Snapshot: the two files of a snapshot, weights and solver state, and which of a prefix's snapshots are whole.

PREFIX_iter_N.caffemodel is written first, PREFIX_iter_N.solverstate last: a snapshot whose state exists is complete.
Both are Caffe's files, binary or, with names that end with .h5, HDF5. In fields that Caffe skips, the state also holds
the seed, the solver type, the kernels chosen, the position of each data layer, the checksum of its weights, and which
run has written it, as which of the prefix's states (see states.py).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from readers.files import Part
from scaffe.errors import PrototxtError, SnapshotError, WeightsError
from scaffe.files.atomic import remove_unfinished
from scaffe.files.prefix_lock import PrefixLock
from scaffe.files.states import Origin, PrefixState, complete, following, mixture, states
from scaffe.monitor.log import log
from scaffe.proto import NetParameter, SolverParameter, SolverState, blobs, checksums, hdf5
from scaffe.proto.files import read_solver_state, read_weights


class Format(NamedTuple):
    """A format of snapshots: its name in the log, the end of its files' names, and the encoding of a state."""

    name: str
    suffix: str
    encode: Callable[[SolverState, Iterable[np.ndarray], Iterable[np.ndarray]], bytes | list[Part]]


def _encode_binary(
    state: SolverState, history: Iterable[np.ndarray], residual: Iterable[np.ndarray] = ()
) -> list[Part]:
    # First, so that what is cut off behind it is missed, and that `states` reads no further.
    head = SolverState(iter=state.iter, run=state.run, order=state.order, sealed=True)
    parts: list[Part] = [head.SerializeToString(), state.SerializeToString()]
    for number, arrays in ((SolverState.HISTORY_FIELD_NUMBER, history), (SolverState.RESIDUAL_FIELD_NUMBER, residual)):
        for values in arrays:
            parts += blobs.nested(number, blobs.encode_checked(values))
    return blobs.sealed(parts, SolverState.CHECKSUM_FIELD_NUMBER)


FORMATS = {
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
    """Return the lock of a prefix. Taking it removes the unfinished files of runs that were killed."""
    return PrefixLock(prefix, lambda: _remove_unfinished(prefix))


def _remove_unfinished(prefix: str) -> None:
    """Remove files that were never finished. The holder of the prefix's lock alone writes such files."""
    folder, name = os.path.split(prefix)
    remove_unfinished(folder, re.escape(name) + _FILE)


class Stored(NamedTuple):
    """A snapshot as it was read: the paths and the content of its files."""

    path: str
    state: SolverState
    model: str
    net: NetParameter


class Shapes(NamedTuple):
    """The shapes that a net and its update rule give a snapshot's blobs."""

    history: Sequence[tuple[int, ...]]
    weights: Mapping[str, Sequence[tuple[int, ...]]]


def read(path: str, shapes: Shapes | None = None, strict: bool = True) -> Stored:
    """Read a snapshot by its state's path; with `shapes`, only the values that fit them.

    Raise PrototxtError, WeightsError or SnapshotError where it isn't whole. Weights that are not those written with the
    state raise SnapshotError too, or are warned of where it isn't `strict`: the user may have changed them.
    """
    state = read_solver_state(path, list(shapes.history) if shapes else None)
    model = _model_of(state, path)
    net = read_weights(model, shapes.weights if shapes else None)
    if state.weights_checksum and net.checksum and state.weights_checksum != checksums.digits(net.checksum):
        said = f"{path}: its weights {model} are others than those written with it"
        if strict:
            raise SnapshotError(f"{said}: a job that wrote them anew was killed before it wrote their state")
        log.warning("%s", said)
    return Stored(path, state, model, net)


def _model_of(state: SolverState, path: str) -> str:
    """Return the path of a state's weights: beside it, or as it says."""
    stored = os.fsdecode(state.learned_net)  # bytes where they are no UTF-8
    beside = os.path.join(os.path.dirname(path), os.path.basename(stored))
    for model in (beside, stored):
        if os.path.isfile(model):
            return model
    raise SnapshotError(f"{path}: its weights '{stored}' are missing, also beside it")


_FILE = r"_iter_\d+\.(caffemodel|solverstate)(\.h5)?"


def newest(prefix: str, run: int) -> str | None:
    """Return the state of a run's newest snapshot that is whole and can be read; None if there is none."""
    return newest_of([one.path for one in _of_run(states(prefix), run)], prefix)


def _of_run(found: Iterable[PrefixState], run: int) -> list[PrefixState]:
    """Return the states of one of a prefix's runs; none for 0, a run that has written none."""
    return [one for one in found if run and one.origin and one.origin.run == run]


def newest_of(paths: Collection[str], prefix: str) -> str | None:
    """Return the newest of these states of a prefix whose snapshot is whole and can be read; None if there is none."""
    for one in reversed(states(prefix)):
        if one.path in paths:
            with contextlib.suppress(PrototxtError, SnapshotError, WeightsError):
                return read(one.path).path
    return None


def read_newest(prefix: str, shapes: Shapes | None = None) -> Stored | None:
    """Read the snapshot that was written last, of those whose files are both whole; None where there are no snapshots.

    Log a warning where other runs' snapshots lie beside it. Raise SnapshotError where none is whole, or where one is in
    HDF5 and h5py is missing: a new run would write over it.
    """
    found = states(prefix)
    for one in reversed(found):
        if one.path.endswith(".h5"):
            hdf5.library()
        try:
            stored = read(one.path, shapes)
        except (PrototxtError, SnapshotError, WeightsError) as error:
            log.warning("Passing over a snapshot: %s", error)
            continue
        if said := mixture(one, found):
            log.warning("snapshot_prefix '%s': %s", prefix, said)
        return stored
    if found:
        raise SnapshotError(
            f"snapshot_prefix '{prefix}': there are snapshots, but none is whole (newest: {found[-1].path}): "
            "copy one anew; or, to start anew, remove them or choose another snapshot_prefix"
        )
    return None


def next_origin(prefix: str, origin: Origin, at: int) -> Origin:
    """Return the origin of a run's next state, after `at` iterations. Log a warning where it begins among others'."""
    found = states(prefix)
    following_one = following(origin, at, found)
    if found and not _of_run(found, following_one.run):
        text = (
            "snapshot_prefix '%s': %d snapshot(s) of other runs are there, up to iteration %d; this run replaces those "
            "of its own iterations, and --snapshot auto goes on from what is written last"
        )
        log.warning(text, prefix, len(found), max(one.iteration for one in found))
    return following_one


def prune(prefix: str, run: int, keep: int) -> None:
    """Remove all but the newest `keep` of a run's complete snapshots, each state before its weights."""
    for one in _of_run(complete(prefix), run)[:-keep]:
        log.info("Removing older snapshot %s", one.path)
        for name in (one.path, one.model):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
