"""The mean image that several ranks sum is to the bit what one process finds."""

from __future__ import annotations

import nets
import numpy as np
import pytest
from mpi4py import MPI

from readers import ReaderError, compute_image_mean, encode, image_mean, write_lmdb
from readers.sharded_lmdb import shard_name
from scaffe.parallel import image_mean as over_ranks
from scaffe.parallel.world import World

COMM = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi
COUNT = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "mean", count=8)


def write(folder, kind, bad: int = -1) -> None:
    """Write an LMDB and stripes of it, on the root."""
    if COMM.rank == 0:
        random = np.random.RandomState(0)
        images = [(random.rand(2, 3, 4) * 255).astype(kind) for _ in range(COUNT)]
        records = [(b"%03d" % n, encode(image, 0)) for n, image in enumerate(images)]
        if bad >= 0:
            records[bad] = records[bad][0], b"no datum"
        (folder / "striped").mkdir(exist_ok=True)
        write_lmdb(folder / "whole", records, replace=True)
        for number in range(3):
            write_lmdb(folder / "striped" / shard_name(number, 3), records[number::3], replace=True)
    COMM.Barrier()


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_any_number_of_ranks_writes_the_same_bytes(folder, monkeypatch, block, kind):
    monkeypatch.setattr(image_mean, "BLOCK", block)
    write(folder, kind)
    world = World(COMM.Dup())
    for source in ("whole", "striped"):
        mean = over_ranks.compute_image_mean(folder / source, folder / "ours", world)
        assert (mean is None) == (COMM.rank != 0)
        if COMM.rank == 0:
            compute_image_mean(folder / "whole", folder / "alone", threads=1)
            assert (folder / "ours").read_bytes() == (folder / "alone").read_bytes()


def test_a_bad_record_is_told_on_all_ranks(folder, monkeypatch):
    monkeypatch.setattr(image_mean, "BLOCK", 8)
    write(folder, np.uint8, bad=77)
    with pytest.raises(Exception, match="record '077': 8 bytes that are not a Datum") as caught:
        over_ranks.compute_image_mean(folder / "whole", folder / "bad", World(COMM.Dup()))
    assert isinstance(caught.value, ReaderError) or COMM.size > 1
    assert not (folder / "bad").exists()


def test_a_database_that_is_missing_is_told_on_all_ranks(folder):
    with pytest.raises(Exception, match="nowhere: the LMDB or LevelDB can't be opened"):
        over_ranks.compute_image_mean(folder / "nowhere", folder / "bad", World(COMM.Dup()))
