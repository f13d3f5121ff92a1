"""Parameters of a net to and from Caffe's .caffemodel files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from readers import blob_shape, has_old_shape
from scaffe.atomic import write_atomically
from scaffe.errors import WeightsError
from scaffe.finite import all_finite, check_layers
from scaffe.monitor.log import log
from scaffe.proto import BlobProto, LayerParameter, NetParameter, blobs, hdf5
from scaffe.proto.files import read_weights

if TYPE_CHECKING:
    from scaffe.blob import Blob
    from scaffe.net import Net


def from_proto(proto: BlobProto, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Return a stored blob as float32 of `shape`.

    Raise WeightsError, naming `where`, if it has another, or a value that is not finite.
    """
    stored, legacy = blob_shape(proto), has_old_shape(proto)
    if stored != shape and not (legacy and stored == (1,) * (4 - len(shape)) + shape):
        raise WeightsError(f"{where}: shape {shape} in the net, {stored} in the file")
    values = blobs.values(proto)
    if values.size != np.prod(shape, dtype=int):
        raise WeightsError(f"{where}: {values.size} values in the file for shape {stored}")
    if not all_finite(values):
        raise WeightsError(f"{where}: holds a value that is not finite")
    return values.reshape(shape)


def load(net: Net, path: str | os.PathLike) -> None:
    """Copy the blobs of the file's layers, binary or HDF5, into the net's layers of the same names.

    Layers that only one side has are left alone, which is what fine-tuning lives on. Raise WeightsError where
    a layer's blobs differ in number or shape; the net is unchanged then.
    """
    copy(net, read_weights(path, shapes(net)), path)


def shapes(net: Net) -> dict[str, list[tuple[int, ...]]]:
    """Return the shapes of a net's parameters by layer."""
    return {name: [blob.shape for blob in mine] for name, mine in net.params.items()}


def copy(net: Net, stored_net: NetParameter, path: str | os.PathLike) -> None:
    """Do what `load` does with the content of the file `path`."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    shared = _shared(net)
    for layer in stored_net.layer:
        mine = net.params.get(layer.name)
        if mine is None:
            if layer.blobs:
                log.info("Ignoring source layer %s", layer.name)
            continue
        stored = {i: proto for i, proto in enumerate(layer.blobs) if proto.ByteSize()}  # HDF5 has gaps
        needed = {i for i, blob in enumerate(mine) if blob not in shared}
        where = f"{path}: layer '{layer.name}'"
        if not needed <= stored.keys() <= set(range(len(mine))):
            raise WeightsError(f"{where}: {len(mine)} parameter blobs in the net, {len(stored)} in the file")
        for i, proto in stored.items():
            found.append((mine[i].data, from_proto(proto, mine[i].shape, f"{where}, blob {i}")))
    for target, values in found:
        target[...] = values
    if not found:
        log.warning("%s: none of its layers with parameters is in the net", path)


def _shared(net: Net) -> set[Blob]:
    """Return the blobs that another layer owns."""
    return {blob for parameter in net.parameters for blob in parameter.sharers}


def load_all(net: Net, paths: Iterable[str | os.PathLike]) -> None:
    """Copy from several files, later ones over earlier ones."""
    for path in paths:
        load(net, path)


def serialised(net: Net, diffs: bool = False) -> bytes:
    """Return the net with its parameters, and their gradients if asked for, as Caffe's binary files hold them."""
    parts = [NetParameter(name=net.name, sealed=True).SerializeToString()]
    for param, layer in zip(net.param.layer, net.layers, strict=True):
        stored = [blobs.encode_checked(blob.data, blob.diff if diffs else None) for blob in layer.blobs]
        fields = [blobs.field(LayerParameter.BLOBS_FIELD_NUMBER, blob) for blob in stored]
        content = b"".join([_without_blobs(param).SerializeToString(), *fields])
        parts.append(blobs.field(NetParameter.LAYER_FIELD_NUMBER, content))
    return blobs.sealed(parts, NetParameter.CHECKSUM_FIELD_NUMBER)


def _without_blobs(param: LayerParameter) -> LayerParameter:
    bare = LayerParameter()
    bare.CopyFrom(param)
    bare.ClearField("blobs")
    return bare


def serialised_hdf5(net: Net, diffs: bool = False) -> bytes:
    """Return the net's parameters, and their gradients if asked for, as Caffe's HDF5 files hold them."""
    shared = _shared(net)
    stored = (
        hdf5.StoredBlob(f"{layer.name}/{i}", None if blob in shared else blob.data, blob.diff)
        for layer in net.layers
        for i, blob in enumerate(layer.blobs)
    )
    return hdf5.encode_weights([layer.name for layer in net.layers], stored, diffs)


def save(net: Net, path: str | os.PathLike, diffs: bool = False) -> None:
    """Write the net's parameters as a .caffemodel, or as HDF5 where `path` ends with .h5.

    The file appears complete or not at all. Raise SnapshotError where a value is not finite.
    """
    check_layers(net.layers, diffs)
    write_atomically(path, serialised_hdf5(net, diffs) if str(path).endswith(".h5") else serialised(net, diffs))
