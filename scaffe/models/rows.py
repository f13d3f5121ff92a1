"""RowsModel: a net whose batches are rows of HDF5 files, with a dataset for each input."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from readers import HDF5Writer
from readers.files import make_folder
from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically
from scaffe.models.model import TESTING, TRAINING, Model
from scaffe.spec.netspec import Function, NetSpec

PARTS = ("train", "test")
ADAM = dict(type="Adam", momentum=0.9, momentum2=0.999, lr_policy="fixed")  # the defaults of Kingma and Ba 2015
TEST_SHARE = 10  # one row in ten is for tests

Rows = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class RowsModel(Model):
    """A net over rows of integers, held as floats. `source` is the path of the lists of HDF5 files."""

    sources: tuple[str, str] = PARTS

    def row(self) -> dict[str, list[int]]:
        """Return the shape of a row of each input, the labels last."""
        raise NotImplementedError

    def made_up(self, rows: int, classes: int, rng: np.random.Generator) -> Rows:
        """Return made-up rows that the net can learn, an array for each input."""
        raise NotImplementedError

    def inputs(self, batch: int) -> dict[str, list[int]]:
        """Return the shapes of a batch's blobs, the labels last."""
        return {name: [batch, *shape] for name, shape in self.row().items()}

    def add_files(self, n: NetSpec, batch: int) -> None:
        """Add layers that read HDF5 files, which the lists `source` name."""
        train, test = (self.source.format(part) for part in self.sources)
        add_hdf5(n, list(self.row()), (train, batch), (test, self.test_batch))

    def add_dummy(self, n: NetSpec, batch: int) -> None:
        """Add constant inputs: 1 everywhere."""
        shapes = self.inputs(batch)
        fields = [dict(dim=shape) for shape in shapes.values()]
        tops = Function("DummyData", (), dict(ntop=len(shapes), shape=fields, data_filler=[ONE] * len(shapes))).tops
        for name, top in zip(shapes, tops, strict=True):
            n[name] = top


ONE = dict(type="constant", value=1)


def add_hdf5(n: NetSpec, names: list[str], train: tuple[str, int], test: tuple[str, int]) -> None:
    """Add HDF5Data layers for both phases, with these tops; `train` and `test` are (source, batch size)."""
    fields = dict(ntop=len(names), include=TRAINING, source=train[0], batch_size=train[1])
    for name, top in zip(names, Function("HDF5Data", (), fields).tops, strict=True):
        n[name] = top
    fields = dict(ntop=0, include=TESTING, source=test[0], batch_size=test[1])
    n[f"{names[0]} of tests"] = Function("HDF5Data", (), dict(fields, name=names[0], top=names))


def write_rows(out_dir: str | os.PathLike[str], rows: Rows) -> list[str]:
    """Write the rows as train.h5 and test.h5 in `out_dir`, with the lists train.txt and test.txt; return the lists.

    One row in ten, the last ones, are for tests. Raise ScaffeError for a folder that a list cannot name, ReaderError
    without h5py, and either where a file can't be written.
    """
    folder = os.fspath(out_dir)
    if folder.split() != [folder]:
        raise ScaffeError(f"'{folder}' has spaces, and a list of HDF5 files has a word for each file; use another name")
    make_folder(folder)
    count = len(next(iter(rows.values())))
    first = count - max(1, count // TEST_SHARE)
    lists = []
    for part, chosen in zip(PARTS, (slice(0, first), slice(first, count)), strict=True):
        path = os.path.join(folder, part)
        writer = HDF5Writer(f"{path}.h5")
        writer.append(**{name: np.asarray(array[chosen], np.float32) for name, array in rows.items()})
        writer.close()
        write_atomically(f"{path}.txt", f"{path}.h5\n".encode())
        lists.append(f"{path}.txt")
    return lists
