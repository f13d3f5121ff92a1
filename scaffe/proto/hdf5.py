"""Weights and solver states in HDF5, in Caffe's layout.

A .caffemodel.h5 has data/LAYER/INDEX for each parameter blob that the layer owns, and diff/LAYER/INDEX if gradients are
stored. A .solverstate.h5 has iter, learned_net, current_step and history/INDEX. The other fields of a SolverState,
which an exact resume needs, are in scaffe/state as text, a net's input transforms in scaffe/net; Caffe ignores both.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import numpy as np
from google.protobuf import text_format

from readers.errors import SourceError, reason
from readers.hdf5_file import DAMAGED, check_inside, check_numbers, find, is_group, walk
from scaffe.errors import PrototxtError, ScaffeError, SnapshotError, WeightsError
from scaffe.proto import BlobProto, InputTransform, LayerParameter, NetParameter, SolverState, blobs, checksums

STATE_FOR_WEIGHTS = "a solver state where weights are expected; give it to --snapshot"
WEIGHTS_FOR_STATE = "not a solver state; weights (.caffemodel) are given with --weights"
_MAGIC = b"\x89HDF\r\n\x1a\n"
_OWN, _OWN_OF_NET = "scaffe/state", "scaffe/net"
MOST_BLOBS = 1000  # per layer, if no net gives the number
MOST_TEXT = 64 << 20  # bytes
NO_SHAPE = (-1,)
UNPACKED = 16  # limit of decompressed bytes per byte of the file, if no net gives the sizes
_SEALED, _CHECKSUM = "sealed", "checksum"  # attributes that Caffe ignores


class StoredBlob(NamedTuple):
    """A parameter blob to write: its name LAYER/INDEX and the arrays to store, None for those to leave out."""

    name: str
    data: np.ndarray | None
    diff: np.ndarray | None


def library() -> Any:
    """Return the module h5py. Raise SnapshotError if it is not installed."""
    try:
        import h5py
    except ImportError:
        raise SnapshotError("HDF5 files need h5py, which is not installed; pip install h5py") from None
    return h5py


def is_hdf5(content: bytes) -> bool:
    """Return whether a file's content is HDF5, by its first bytes."""
    return content.startswith(_MAGIC)


def encode_weights(
    layers: Iterable[str], stored: Iterable[StoredBlob], diffs: bool, transforms: Iterable[InputTransform] = ()
) -> bytes:
    """Return the HDF5 file of a net's parameters. Each layer has a group, also a layer without parameters."""
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
        if own := NetParameter(input_transform=transforms).input_transform:
            file[_OWN_OF_NET] = _text(text_format.MessageToString(NetParameter(input_transform=own)))
    return _sealed(buffer)


def encode_solver_state(
    state: SolverState, history: Iterable[np.ndarray], residual: Iterable[np.ndarray] = ()
) -> bytes:
    """Return the HDF5 file of a solver state, its history and its residual, which are not in `state`."""
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
        for group, arrays in (("history", history), ("residual", residual)):
            for i, values in enumerate(arrays):
                _write(file, f"{group}/{i}", values)
        file[_OWN] = _text(text_format.MessageToString(own))
    return _sealed(buffer)


def _write(file: Any, name: str, values: np.ndarray) -> None:
    values = np.ascontiguousarray(values, "<f4")
    file[name] = values
    file[name].attrs[_CHECKSUM] = np.uint64(checksums.of(values.shape, values))


def _sealed(buffer: io.BytesIO) -> bytes:
    """Return a file followed by its seal, which HDF5 ignores."""
    with buffer.getbuffer() as content:
        seal = checksums.seal([content])
    buffer.seek(0, os.SEEK_END)
    buffer.write(seal)
    return buffer.getvalue()


def _text(text: str) -> np.ndarray:
    """Return a string as Caffe reads it: of fixed length, terminated by a zero byte."""
    content = text.encode()
    return np.array(content, f"S{len(content) + 1}")


Shape = tuple[int, ...]


def decode_weights(
    content: bytes, path: str | os.PathLike[str], shapes: Mapping[str, Sequence[Shape]] | None = None
) -> NetParameter:
    """Return the layers of an HDF5 file with their blobs.

    A blob that another layer owns has no shape and no data, or is missing at the end of the list. Given the `shapes` of
    a net's parameters, by layer:

    - blobs of a matching shape have values;
    - other blobs of the net's layers have their shape only;
    - blobs of other layers are empty.

    Raise PrototxtError if the file holds something else, WeightsError if a layer has more blobs than in the net.
    """
    net = NetParameter()
    with _opened(content, path) as file:
        group = find(file, "data")
        if group is None:
            raise PrototxtError(f"{path}: {'no group data in it' if find(file, 'iter') is None else STATE_FOR_WEIGHTS}")
        if find(file, _OWN_OF_NET) is not None:
            text_format.Parse(_content(file, _OWN_OF_NET), net, allow_unknown_field=True)
        net.sealed, net.checksum = _SEALED in file.attrs, checksums.of_file(content)
        layers = _layers(group)
        if shapes is None:
            _check_size((dataset for arrays in layers.values() for dataset in arrays.values()), content)
        for name, arrays in layers.items():
            layer = net.layer.add(name=name)
            if shapes is None or name in shapes:
                _fill_layer(layer, arrays, None if shapes is None else shapes[name], path)
            elif arrays:
                layer.blobs.add()
    return net


def _fill_layer(
    layer: LayerParameter, arrays: dict[int, Any], shapes: Sequence[Shape] | None, path: str | os.PathLike[str]
) -> None:
    most = MOST_BLOBS if shapes is None else len(shapes)
    last = max(arrays, default=-1)
    if last >= most:
        expected = f"at most {most} parameter blobs" if shapes is None else f"{most} parameter blobs in the net"
        raise WeightsError(f"{path}: layer '{layer.name}': {expected}, blob {last} in the file")
    for i in range(last + 1):
        _fill(layer.blobs.add(), arrays.get(i), None if shapes is None else shapes[i])


def _layers(group: Any) -> dict[str, dict[int, Any]]:
    """Return the datasets under a group by layer and index. A layer's name may have slashes; its group may be empty."""
    if not is_group(group):
        raise SourceError("'data' is no group")
    found: dict[str, dict[int, Any]] = {}
    for name, item in walk(group):
        if is_group(item):
            found[name] = {}
            continue
        layer, _, index = name.rpartition("/")
        if not (index.isascii() and index.isdigit()):
            raise SourceError(f"expected blobs that are called by their number in 'data/{layer}', got '{index}'")
        check_numbers(item, f"data/{name}")
        found.setdefault(layer, {})[int(index)] = item
    return found


def decode_solver_state(
    content: bytes, path: str | os.PathLike[str], shapes: Sequence[Shape] | None = None
) -> SolverState:
    """Return the solver state in an HDF5 file. Raise PrototxtError if it holds something else.

    Given the expected `shapes` of its history, only blobs of a matching shape have values.
    """
    with _opened(content, path) as file:
        state = _own_state(file, path)
        state.sealed = _SEALED in file.attrs
        state.iter, state.current_step = _number(file, "iter"), _number(file, "current_step")
        state.learned_net = _content(file, "learned_net").decode()
        history = _arrays(file, "history")
        if shapes is None:
            _check_size(history, content)
            shapes = [dataset.shape for dataset in history]
        elif len(shapes) != len(history):
            shapes = [NO_SHAPE] * len(history)
        for dataset, shape in zip(history, shapes, strict=True):
            _fill(state.history.add(), dataset, shape)
        residual = _arrays(file, "residual") if find(file, "residual") is not None else []
        _check_size(residual, content)
        for dataset in residual:
            _fill(state.residual.add(), dataset, dataset.shape)
    return state


def _arrays(file: Any, name: str) -> list[Any]:
    group = find(file, name)
    if not is_group(group):
        raise SourceError(f"no group {name} in it")
    datasets = [find(group, str(i)) for i in range(len(group))]
    for i, dataset in enumerate(datasets):
        check_numbers(dataset, f"{name}/{i}")
    return datasets


def _number(file: Any, path: str) -> int:
    """Return the integer at `path`."""
    dataset = find(file, path)
    check_numbers(dataset, path)
    if dataset.size != 1 or dataset.dtype.kind == "f":
        raise SourceError(f"expected one integer in '{path}', got {dataset.dtype} of shape {dataset.shape}")
    return int(dataset[()].item())


def _content(file: Any, path: str) -> bytes:
    """Return the string at `path`."""
    dataset = find(file, path)
    check_inside(dataset, path)
    if library().check_string_dtype(dataset.dtype) is None or dataset.size != 1 or dataset.nbytes > MOST_TEXT:
        raise SourceError(f"expected a string in '{path}', got {dataset.dtype} of shape {dataset.shape}")
    return bytes(dataset[()] if dataset.shape == () else dataset[0])


def _check_size(datasets: Iterable[Any], content: bytes) -> None:
    """Raise SourceError for a file whose decompressed size is far larger than the file."""
    unpacked = sum(dataset.nbytes for dataset in datasets)
    if unpacked > max(UNPACKED * len(content), MOST_TEXT):
        raise SourceError(f"{len(content)} bytes that would unpack to {unpacked}")


def _fill(blob: BlobProto, dataset: Any, shape: Shape | None) -> None:
    """Copy a dataset into a blob: its shape and, if `shape` is None or equal to it, its values."""
    if dataset is None:
        return
    if shape is None or dataset.shape == shape:
        with np.errstate(over="ignore"):  # of float64
            blob.MergeFromString(blobs.encode(np.asarray(dataset[()])))
        if _CHECKSUM in dataset.attrs:
            blob.checksum = int(dataset.attrs[_CHECKSUM])
    else:
        blob.shape.dim.extend(dataset.shape)


def caffes_part(file: IO[bytes], path: str | os.PathLike[str]) -> str:
    """Return "iter" for an open solver state, "data" for weights, "" for any other HDF5 file.

    Raise PrototxtError for a damaged file, SnapshotError without h5py.
    """
    with _opened(file, path) as opened:
        if find(opened, "iter") is not None and find(opened, "history") is not None:
            return "iter"
        return "data" if is_group(find(opened, "data")) else ""


def read_origin(file: IO[bytes], path: str | os.PathLike[str]) -> SolverState:
    """Return what only scaffe writes into an HDF5 solver state. Raise PrototxtError for a damaged file."""
    with _opened(file, path) as opened:
        return _own_state(opened, path)


def _own_state(file: Any, path: str | os.PathLike[str]) -> SolverState:
    own = SolverState()
    if find(file, "iter") is None:
        raise PrototxtError(f"{path}: {WEIGHTS_FOR_STATE}")
    if find(file, _OWN) is not None:
        text_format.Parse(_content(file, _OWN), own, allow_unknown_field=True)
    return own


@contextmanager
def _opened(content: bytes | IO[bytes], path: str | os.PathLike[str]) -> Iterator[Any]:
    """Open the HDF5 file `path` from its content. Raise PrototxtError if it cannot be read."""
    h5py = library()
    try:
        with h5py.File(io.BytesIO(content) if isinstance(content, bytes) else content, "r") as file:
            yield file
    except ScaffeError:
        raise
    except SourceError as error:
        raise PrototxtError(f"{path}: {error}") from None
    except (*DAMAGED, text_format.ParseError) as error:
        raise PrototxtError(f"{path}: a damaged HDF5 file: {reason(error)}") from None
