"""Snapshot: the two files of a snapshot, weights and solver state, and which of a prefix's snapshots are whole.

PREFIX_iter_N.caffemodel is written first, PREFIX_iter_N.solverstate last: a snapshot whose state exists is complete.
Both are Caffe's files, binary or, with names that end with .h5, HDF5. In fields that Caffe skips, the state also holds
the seed, the solver type, the kernels chosen, and the position of each data layer.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from glob import escape, glob
from typing import NamedTuple

import numpy as np

from readers.files import TEMPORARY, Part
from scaffe.errors import PrototxtError, SnapshotError, WeightsError
from scaffe.files.prefix_lock import PrefixLock
from scaffe.monitor.log import log
from scaffe.proto import NetParameter, SolverParameter, SolverState, blobs, hdf5
from scaffe.proto.files import read_solver_state, read_weights


class Format(NamedTuple):
    """A format of snapshots: its name in the log, the end of its files' names, and the encoding of a state."""

    name: str
    suffix: str
    encode: Callable[[SolverState, Iterable[np.ndarray]], bytes | list[Part]]


def _encode_binary(state: SolverState, history: Iterable[np.ndarray]) -> list[Part]:
    head = SolverState(iter=state.iter, sealed=True)  # first, so that what is cut off behind it is missed
    parts: list[Part] = [head.SerializeToString(), state.SerializeToString()]
    for values in history:
        parts += blobs.nested(SolverState.HISTORY_FIELD_NUMBER, blobs.encode_checked(values))
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
    name = re.compile(re.escape(os.path.basename(prefix)) + _FILE + TEMPORARY)
    folder = os.path.dirname(prefix) or "."
    for found in filter(name.fullmatch, os.listdir(folder)):
        log.info("Removing %s, which was never finished", os.path.join(folder, found))
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, found))


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


def read(path: str, shapes: Shapes | None = None) -> Stored:
    """Read a snapshot by its state's path; with `shapes`, only the values that fit them.

    Raise PrototxtError, WeightsError or SnapshotError where it isn't whole.
    """
    state = read_solver_state(path, list(shapes.history) if shapes else None)
    model = _model_of(state, path)
    return Stored(path, state, model, read_weights(model, shapes.weights if shapes else None))


def _model_of(state: SolverState, path: str) -> str:
    """Return the path of a state's weights: beside it, or as it says."""
    stored = os.fsdecode(state.learned_net)  # bytes where they are no UTF-8
    beside = os.path.join(os.path.dirname(path), os.path.basename(stored))
    for model in (beside, stored):
        if os.path.isfile(model):
            return model
    raise SnapshotError(f"{path}: its weights '{stored}' are missing, also beside it")


_FILE = r"_iter_\d+\.(caffemodel|solverstate)(\.h5)?"
_STATE = re.compile(r"_iter_(\d+)\.solverstate(\.h5)?$")


def iteration(state: str) -> int:
    """Return the iteration of a state's path, -1 for a path that is none."""
    found = _STATE.search(state)
    return int(found[1]) if found else -1


def _model_beside(state: str) -> str:
    return re.sub(r"\.solverstate(\.h5)?$", r".caffemodel\1", state)


def _states(prefix: str) -> list[str]:
    """Return a prefix's states, oldest first. A state is written last, so each belongs to a snapshot."""
    found = glob(f"{escape(prefix)}_iter_*.solverstate*")
    return sorted((path for path in found if iteration(path) >= 0), key=iteration)


def complete(prefix: str) -> list[str]:
    """Return the states of a prefix's complete snapshots, oldest first."""
    return [path for path in _states(prefix) if os.path.isfile(_model_beside(path))]


def newest(prefix: str) -> str | None:
    """Return the state of the newest snapshot that is whole and can be read; None if there is none."""
    try:
        found = read_newest(prefix)
    except SnapshotError:
        return None
    return found and found.path


def newest_of(states: Collection[str], prefix: str) -> str | None:
    """Return the newest of these states of a prefix whose snapshot is whole and can be read; None if there is none."""
    for path in reversed(_states(prefix)):
        if path in states:
            with contextlib.suppress(PrototxtError, SnapshotError, WeightsError):
                return read(path).path
    return None


def read_newest(prefix: str, shapes: Shapes | None = None) -> Stored | None:
    """Read the newest snapshot of which both files are whole, as `read` does; None where there are no snapshots.

    Raise SnapshotError where none is whole, or where one is in HDF5 and h5py is missing: a new run would write over it.
    """
    states = _states(prefix)
    for path in reversed(states):
        if path.endswith(".h5"):
            hdf5.library()
        try:
            return read(path, shapes)
        except (PrototxtError, SnapshotError, WeightsError) as error:
            log.warning("Passing over a snapshot: %s", error)
    if states:
        raise SnapshotError(
            f"snapshot_prefix '{prefix}': there are snapshots, but none is whole (newest: {states[-1]}): "
            "copy one anew; or, to start anew, remove them or choose another snapshot_prefix"
        )
    return None


def prune(state: str, prefix: str, keep: int) -> None:
    """Remove all but `keep` of the complete snapshots up to `state`, each state before its weights."""
    older = [path for path in complete(prefix) if iteration(path) < iteration(state)]
    for path in [*older, state][:-keep]:
        log.info("Removing older snapshot %s", path)
        for name in (path, _model_beside(path)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
