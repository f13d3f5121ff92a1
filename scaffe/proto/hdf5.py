"""Weights and solver states in HDF5, laid out as Caffe lays them out.

A .caffemodel.h5 has data/LAYER/INDEX for each parameter blob but those that another layer owns, and diff/LAYER/INDEX
where gradients are stored. A .solverstate.h5 has iter, learned_net, current_step and history/INDEX. What else an
exact resume needs is in scaffe/state, which Caffe doesn't look at: a SolverState's further fields, as text.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import text_format

from scaffe.errors import PrototxtError, SnapshotError
from scaffe.proto import BlobProto, NetParameter, SolverState, blobs, checksums

STATE_FOR_WEIGHTS = "a solver state where weights are expected; give it to --snapshot"
WEIGHTS_FOR_STATE = "not a solver state; weights (.caffemodel) are given with --weights"
_MAGIC = b"\x89HDF\r\n\x1a\n"
_OWN = "scaffe/state"
_SEALED, _CHECKSUM = "sealed", "checksum"  # attributes, which Caffe doesn't look at


class Stored(NamedTuple):
    """A parameter blob to write: its name LAYER/INDEX, and what of it is to be stored."""

    name: str
    data: np.ndarray | None
    diff: np.ndarray | None


def library() -> Any:
    """Return h5py. Raise SnapshotError, saying how to get it, where it is not installed."""
    try:
        import h5py
    except ImportError:
        raise SnapshotError("HDF5 files need h5py, which is not installed; pip install h5py") from None
    return h5py


def is_hdf5(content: bytes) -> bool:
    return content.startswith(_MAGIC)


def encode_weights(layers: Iterable[str], stored: Iterable[Stored], diffs: bool) -> bytes:
    """Return the HDF5 file of a net's parameters. Each layer has its group, also without any."""
    buffer = io.BytesIO()
    parts = ("data", "diff") if diffs else ("data",)
    with library().File(buffer, "w") as file:
        file.attrs[_SEALED] = True
        for name in layers:
            for part in parts:
                file.require_group(f"{part}/{name}")
        for blob in stored:
            for part in parts:
                if (values := getattr(blob, part)) is not None:
                    _write(file, f"{part}/{blob.name}", values)
    return _sealed(buffer)


def encode_solver_state(state: SolverState, history: Iterable[np.ndarray]) -> bytes:
    """Return the HDF5 file of a solver state and its history, which `state` itself leaves out."""
    buffer = io.BytesIO()
    own = SolverState()
    own.CopyFrom(state)
    for field in ("iter", "learned_net", "current_step"):
        own.ClearField(field)
    with library().File(buffer, "w") as file:
        file.attrs[_SEALED] = True
        file["iter"] = np.array([state.iter], "<i4")
        file["learned_net"] = _text(state.learned_net)
        file["current_step"] = np.array([state.current_step], "<i4")
        for i, values in enumerate(history):
            _write(file, f"history/{i}", values)
        file[_OWN] = _text(text_format.MessageToString(own))
    return _sealed(buffer)


def _write(file: Any, name: str, values: np.ndarray) -> None:
    values = np.ascontiguousarray(values, "<f4")
    file[name] = values
    file[name].attrs[_CHECKSUM] = np.uint64(checksums.of(values.shape, values))


def _sealed(buffer: io.BytesIO) -> bytes:
    """Return a file with its seal, which HDF5 doesn't look at, behind it."""
    with buffer.getbuffer() as content:
        seal = checksums.seal([content])
    buffer.seek(0, os.SEEK_END)
    buffer.write(seal)
    return buffer.getvalue()


def _text(text: str) -> np.ndarray:
    """Return a string as Caffe reads one: of fixed length, with a zero at its end."""
    content = text.encode()
    return np.array(content, f"S{len(content) + 1}")


def decode_weights(content: bytes, path: str | os.PathLike) -> NetParameter:
    """Return the layers of an HDF5 file with their blobs. Raise PrototxtError where it holds something else.

    A blob that is left out, since another layer owns it, has no shape and no data, or is not there.
    """
    net = NetParameter()
    with _opened(content, path) as file:
        if "data" not in file:
            raise PrototxtError(f"{path}: {STATE_FOR_WEIGHTS if 'iter' in file else 'no group data in it'}")
        net.sealed = _SEALED in file.attrs
        for name, arrays in _layers(file["data"]).items():
            layer = net.layer.add(name=name)
            for i in range(max(arrays, default=-1) + 1):
                _fill(layer.blobs.add(), arrays.get(i))
    return net


def _layers(group: Any) -> dict[str, dict[int, Any]]:
    """Return the datasets under a group by layer and index. A layer's name may have slashes; its group may be empty."""
    found: dict[str, dict[int, Any]] = {}

    def visit(name: str, item: Any) -> None:
        if hasattr(item, "dtype"):
            layer, _, index = name.rpartition("/")
            found.setdefault(layer, {})[int(index)] = item
        elif not len(item):
            found[name] = {}

    group.visititems(visit)
    return found


def decode_solver_state(content: bytes, path: str | os.PathLike) -> SolverState:
    """Return the solver state in an HDF5 file. Raise PrototxtError where it holds something else."""
    state = SolverState()
    with _opened(content, path) as file:
        if "iter" not in file:
            raise PrototxtError(f"{path}: {WEIGHTS_FOR_STATE}")
        if _OWN in file:
            text_format.Parse(bytes(file[_OWN][()]), state, allow_unknown_field=True)
        state.sealed = _SEALED in file.attrs
        state.iter, state.current_step = int(file["iter"][0]), int(file["current_step"][0])
        state.learned_net = bytes(file["learned_net"][()]).decode()
        for i in range(len(file["history"])):
            _fill(state.history.add(), file[f"history/{i}"])
    return state


def _fill(blob: BlobProto, dataset: Any) -> None:
    if dataset is not None:
        blob.MergeFromString(blobs.encode(np.asarray(dataset[()])))
        if _CHECKSUM in dataset.attrs:
            blob.checksum = int(dataset.attrs[_CHECKSUM])


@contextmanager
def _opened(content: bytes, path: str | os.PathLike) -> Iterator[Any]:
    """Open the HDF5 file `path`, whose content is given. Raise PrototxtError where it can't be read."""
    h5py = library()
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            yield file
    except (OSError, KeyError, ValueError, RuntimeError, text_format.ParseError) as error:
        raise PrototxtError(f"{path}: a damaged HDF5 file: {' '.join(str(error).split())}") from None
