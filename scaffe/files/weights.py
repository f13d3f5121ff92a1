"""Weights: a net's parameters, read from and written to Caffe's .caffemodel files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from readers import blob_shape, has_old_shape
from readers.files import Part
from scaffe.blob import Blob
from scaffe.blobs.finite import all_finite, check_layers
from scaffe.errors import WeightsError
from scaffe.files.atomic import write_atomically
from scaffe.monitor.log import log
from scaffe.proto import BlobProto, InputTransform, LayerParameter, NetParameter, blobs, checksums, hdf5, refusals
from scaffe.proto.files import read_weights, read_weights_hdf5


class BlobContent(NamedTuple):
    """A parameter as a file holds it: its values, its gradient or None, and whether another layer owns it."""

    data: np.ndarray
    diff: np.ndarray | None
    is_shared: bool


@dataclass(frozen=True)
class LayerContent:
    """A layer as a file holds it: its definition and its parameters."""

    param: LayerParameter
    blobs: list[BlobContent]

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.param.name


class NetContent(NamedTuple):
    """A net as a file holds it. Its arrays are the net's own, or what `take` in `content` made of them."""

    name: str
    layers: list[LayerContent]
    transforms: Sequence[InputTransform] = ()  # of the nets' data layers


class _StoredLayer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def blobs(self) -> Sequence[Blob]: ...


class _SharedParameter(Protocol):
    @property
    def sharers(self) -> Iterable[Blob]: ...


class _StoredNet(Protocol):
    """A scaffe.Net, of which this module reads the layers and the parameters."""

    @property
    def name(self) -> str: ...

    @property
    def param(self) -> NetParameter: ...

    @property
    def layers(self) -> Sequence[_StoredLayer]: ...

    @property
    def params(self) -> Mapping[str, Sequence[Blob]]: ...

    @property
    def parameters(self) -> Iterable[_SharedParameter]: ...

    @property
    def transforms(self) -> Sequence[InputTransform]: ...

    def note_trained(self, transforms: Sequence[InputTransform], path: str | os.PathLike[str]) -> None: ...


def from_proto(proto: BlobProto, shape: tuple[int, ...], where: str, remedy: str = "") -> np.ndarray:
    """Return a stored blob as a float32 array of `shape`.

    Raise WeightsError, its text beginning with `where`, for another shape, then ending with the `remedy`, or a value
    that is not finite.
    """
    stored, legacy = blob_shape(proto), has_old_shape(proto)
    if stored != shape and not (legacy and stored == (1,) * (4 - len(shape)) + shape):
        raise WeightsError(f"{where}: shape {shape} in the net, {stored} in the file{remedy}")
    values = blobs.values(proto)
    if values.size != np.prod(shape, dtype=int):
        raise WeightsError(f"{where}: {values.size} values in the file for shape {stored}")
    if not all_finite(values):
        raise WeightsError(f"{where}: holds a value that is not finite")
    return values.reshape(shape)


def load(net: _StoredNet, path: str | os.PathLike[str]) -> None:
    """Copy the blobs of a file's layers, binary or HDF5, into the net's layers of the same names.

    Layers that only the file or only the net has are skipped, as fine-tuning needs. Raise WeightsError if a layer's
    blobs differ in number or shape; the net is then unchanged. A layer by another name is learned anew.
    """
    copy(net, read_weights(path, shapes(net)), path)


def load_hdf5(net: _StoredNet, path: str | os.PathLike[str]) -> None:
    """Copy the blobs of an HDF5 file as `load` does. Raise PrototxtError for a file of another format."""
    copy(net, read_weights_hdf5(path, shapes(net)), path)


def shapes(net: _StoredNet) -> dict[str, list[tuple[int, ...]]]:
    """Return the shapes of a net's parameters, by the layers' names."""
    return {name: [blob.shape for blob in mine] for name, mine in net.params.items()}


def copy(net: _StoredNet, stored_net: NetParameter, path: str | os.PathLike[str]) -> None:
    """Copy the content of a weights file as `load` does; `path` is named in errors."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    shared = _shared(net)
    for layer in _by_name(stored_net, path):
        mine = net.params.get(layer.name)
        if mine is None:
            if layer.blobs:
                log.info("Ignoring source layer %s", layer.name)
            continue
        stored = {i: proto for i, proto in enumerate(layer.blobs) if proto.ByteSize()}  # HDF5 files lack shared blobs
        needed = {i for i, blob in enumerate(mine) if blob not in shared}
        where = f"{path}: layer '{layer.name}'"
        anew = f"; to learn layer '{layer.name}' anew, rename it in the net, as for fine-tuning with Caffe"
        if not needed <= stored.keys() <= set(range(len(mine))):
            number = f"{len(mine)} parameter blobs in the net, {len(stored)} in the file"
            raise WeightsError(f"{where}: {number}{refusals.blobs_hint(layer) or anew}")
        for i, proto in stored.items():
            found.append((mine[i].data, from_proto(proto, mine[i].shape, f"{where}, blob {i}", anew)))
    for target, values in found:
        target[...] = values
    if not found:
        log.warning("%s: none of its layers with parameters is in the net", path)
    else:
        net.note_trained(stored_net.input_transform, path)


def _by_name(stored_net: NetParameter, path: str | os.PathLike[str]) -> Iterable[LayerParameter]:
    """Return a file's layers, of those of one name the one with parameters. Raise WeightsError where several have."""
    found: dict[str, LayerParameter] = {}
    for layer in stored_net.layer:
        before = found.setdefault(layer.name, layer)
        if before is not layer and before.blobs and layer.blobs:
            raise WeightsError(f"{path}: two layers with parameters are called '{layer.name}'; rename one of them")
        if layer.blobs:
            found[layer.name] = layer
    return found.values()


def _shared(net: _StoredNet) -> set[Blob]:
    """Return the blobs that another layer owns."""
    return {blob for parameter in net.parameters for blob in parameter.sharers}


def listed(text: str) -> list[str]:
    """Return the files of a list with commas, as Caffe has it. Raise WeightsError for an empty name."""
    paths = [path.strip() for path in text.split(",")]
    if not all(paths):
        raise WeightsError(f"weights '{text}' have an empty name between commas; write a.caffemodel,b.caffemodel")
    return paths


def load_all(net: _StoredNet, paths: Iterable[str | os.PathLike[str]]) -> None:
    """Copy the blobs of several files in order; a later file replaces what an earlier one has set."""
    for path in paths:
        load(net, path)


def content(net: _StoredNet, diffs: bool = False, take: Callable[[np.ndarray], np.ndarray] = np.asarray) -> NetContent:
    """Return what a file of the net's parameters holds, with `diffs` their gradients too.

    The arrays are `take(array)` of the net's own.
    """
    shared = _shared(net)
    layers = [
        LayerContent(
            param,
            [BlobContent(take(blob.data), take(blob.diff) if diffs else None, blob in shared) for blob in layer.blobs],
        )
        for param, layer in zip(net.param.layer, net.layers, strict=True)
    ]
    return NetContent(net.name, layers, net.transforms)


def serialised(net: NetContent) -> list[Part]:
    """Return the parts of a net in Caffe's binary format."""
    head = NetParameter(name=net.name, input_transform=net.transforms, sealed=True)
    parts: list[Part] = [head.SerializeToString()]
    for layer in net.layers:
        inner: list[Part] = [_without_blobs(layer.param).SerializeToString()]
        for blob in layer.blobs:
            inner += blobs.nested(LayerParameter.BLOBS_FIELD_NUMBER, blobs.encode_checked(blob.data, blob.diff))
        parts += blobs.nested(NetParameter.LAYER_FIELD_NUMBER, inner)
    return blobs.sealed(parts, NetParameter.CHECKSUM_FIELD_NUMBER)


def _without_blobs(param: LayerParameter) -> LayerParameter:
    bare = LayerParameter()
    bare.CopyFrom(param)
    bare.ClearField("blobs")
    return bare


def _serialised_hdf5(net: NetContent, diffs: bool) -> bytes:
    """Return a net's parameters, with `diffs` their gradients too, in Caffe's HDF5 format."""
    stored = (
        hdf5.StoredBlob(f"{layer.name}/{i}", None if blob.is_shared else blob.data, blob.diff)
        for layer in net.layers
        for i, blob in enumerate(layer.blobs)
    )
    return hdf5.encode_weights([layer.name for layer in net.layers], stored, diffs, net.transforms)


def save(net: _StoredNet, path: str | os.PathLike[str], diffs: bool = False) -> None:
    """Write the net's parameters as a .caffemodel, or as HDF5 if `path` ends with .h5.

    The file appears complete or not at all. Raise SnapshotError if a value is not finite or the file can't be written.
    """
    write(content(net, diffs), path, diffs)


def save_hdf5(net: _StoredNet, path: str | os.PathLike[str], diffs: bool = False) -> None:
    """Write the net's parameters as HDF5, whatever the name of the file, as `save` does."""
    _write_hdf5(content(net, diffs), path, diffs)


def write(net: NetContent, path: str | os.PathLike[str], diffs: bool = False) -> str:
    """Write a net's content as `save` does; return the checksum at the file's end."""
    if str(path).endswith(".h5"):
        return _write_hdf5(net, path, diffs)
    check_layers(net.layers, diffs)
    parts = serialised(net)
    write_atomically(path, parts)
    return checksums.of_file(bytes(parts[-1]))


def _write_hdf5(net: NetContent, path: str | os.PathLike[str], diffs: bool) -> str:
    check_layers(net.layers, diffs)
    content = _serialised_hdf5(net, diffs)
    write_atomically(path, content)
    return checksums.of_file(content)
