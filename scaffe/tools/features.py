"""Features: the values of a net's blobs for each batch, written to files as Caffe's extract_features does."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Protocol

import numpy as np

from readers import DatabaseWriter
from readers.stores import STORES
from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically
from scaffe.near import near
from scaffe.net.net import Net
from scaffe.parallel.evaluate import run_each
from scaffe.parallel.instances.team import Team
from scaffe.parallel.world import World
from scaffe.proto import Datum, hdf5

DATUM_AXES = 3  # channels, height, width


def extract(
    nets: Sequence[Net], outputs: Mapping[str, str], iterations: int, world: World, team: Team, db: str = "lmdb"
) -> dict[str, int]:
    """Run `iterations` batches, divided over the instances of all ranks, and write the values of blobs to files.

    `nets` has one for each instance of this rank. `outputs` holds a path for each blob's name, and `db` is one of
    FORMATS. The root writes the files, in the order of samples that one instance has; they appear complete or not at
    all. Return the number of samples of each blob, 0 on ranks other than the root. Raise ScaffeError for an unknown
    blob or format, or if a file can't be written. Collective.
    """
    world.together(lambda: _check(nets[0], outputs, db))
    counts = dict.fromkeys(outputs, 0)
    with ExitStack() as stack:
        files = world.together(lambda: _open(stack, outputs, db) if world.is_root else {})
        for first in range(0, iterations, team.total):
            numbers = range(first, iterations)[team.first : team.first + team.size]
            mine = run_each(nets, team.crew, [numbers[i : i + 1] for i in range(team.size)], partial(_forward, outputs))
            for batch in chain.from_iterable(world.comm.gather(mine, world.root) or []):
                for name, file in files.items():
                    file.append(batch[name])
                    counts[name] += len(batch[name])
    return counts


def _check(net: Net, outputs: Mapping[str, str], db: str) -> None:
    if db not in FORMATS:
        raise ScaffeError(f"unknown format '{db}'; known formats: {' '.join(FORMATS)}")
    for name in outputs:
        if name not in net.blobs:
            raise ScaffeError(f"no blob '{name}' in net '{net.name}'{near(name, net.blobs, 'its blobs')}")
        shape = net.blobs[name].shape
        if db in DATABASES and len(shape) > 1 + DATUM_AXES:
            raise ScaffeError(
                f"blob '{name}' has shape {shape}: a Datum holds {DATUM_AXES} axes per sample; use --db npy"
            )


def _open(stack: ExitStack, outputs: Mapping[str, str], db: str) -> dict[str, FeatureFile]:
    return {name: stack.enter_context(FORMATS[db](path, name)) for name, path in outputs.items()}


def _forward(names: Iterable[str], net: Net, number: int) -> dict[str, np.ndarray]:
    """Return copies of the blobs after a forward pass, (N x ...); a scalar blob is one sample."""
    net.forward()
    return {name: np.atleast_1d(net.blobs[name].data.copy()) for name in names}


class FeatureFile(Protocol):
    """A context manager that collects batches of one blob; the file appears at the end of the `with` block."""

    def __enter__(self) -> FeatureFile: ...

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def append(self, batch: np.ndarray) -> None:
        """Append a batch of features, (N x ...)."""


class Datums:
    """A database of Datums with float_data, as Caffe's tool writes it; the keys are 0000000000, 0000000001, ..."""

    def __init__(self, path: str, blob: str, backend: str):
        self._writer = DatabaseWriter(path, backend)

    def __enter__(self) -> Datums:
        self._writer.__enter__()
        return self

    def append(self, batch: np.ndarray) -> None:
        """Append a Datum for each row of a batch, (N x C x H x W) or with fewer axes."""
        channels, height, width = (*batch.shape[1:], 1, 1, 1)[:DATUM_AXES]
        rows, first = batch.reshape(len(batch), -1).tolist(), self._writer.count
        datums = (Datum(channels=channels, height=height, width=width, float_data=row) for row in rows)
        self._writer.append([(b"%010d" % key, datum.SerializeToString()) for key, datum in enumerate(datums, first)])

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._writer.__exit__(kind, error, trace)


class WholeFile:
    """A file that is written at the end of the `with` block; its batches are kept in memory until then."""

    def __init__(self, path: str, blob: str, encode: Callable[[str, np.ndarray], bytes]):
        self.path, self.blob, self.encode = path, blob, encode
        self.batches: list[np.ndarray] = []
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise ScaffeError(f"{path}: no such folder: {folder}")

    def __enter__(self) -> WholeFile:
        return self

    def append(self, batch: np.ndarray) -> None:
        """Keep a batch of features, (N x ...)."""
        self.batches.append(batch)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            write_atomically(self.path, self.encode(self.blob, np.concatenate(self.batches)))


def _npy(path: str, blob: str) -> WholeFile:
    """Return a file in numpy's format."""

    def encode(blob: str, values: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, values)
        return buffer.getvalue()

    return WholeFile(path, blob, encode)


def _hdf5(path: str, blob: str) -> WholeFile:
    """Return an HDF5 file with one dataset, named after the blob."""
    library = hdf5.library()  # raises before any batch is run if it is not installed

    def encode(blob: str, values: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        with library.File(buffer, "w") as file:
            file[blob] = values
        return buffer.getvalue()

    return WholeFile(path, blob, encode)


DATABASES: dict[str, Callable[[str, str], FeatureFile]] = {kind: partial(Datums, backend=kind) for kind in STORES}
FORMATS: dict[str, Callable[[str, str], FeatureFile]] = {**DATABASES, "hdf5": _hdf5, "npy": _npy}
