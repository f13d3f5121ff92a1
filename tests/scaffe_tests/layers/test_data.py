"""Data's sources besides a plain LMDB, through the layer: stripes, and records that are made up."""

from __future__ import annotations

import numpy as np
import over_ranks
import pytest

from readers import SyntheticReader, encode, write_lmdb
from readers.sharded_lmdb import shard_name

COUNT = 20
RECORDS = [
    (b"%08d" % n, encode(np.random.RandomState(n).randint(0, 256, (3, 6, 5), np.uint8), n % 4)) for n in range(COUNT)
]


def net(source: object) -> str:
    return f"""
    layer {{ name: "data" type: "Data" top: "data" top: "label"
             data_param {{ source: "{source}" batch_size: 7 backend: LMDB }}
             transform_param {{ scale: 0.5 crop_size: 4 mirror: true }} }}"""


@pytest.fixture
def folder(tmp_path):
    write_lmdb(tmp_path / "whole", RECORDS)
    (tmp_path / "striped").mkdir()
    for number in range(3):
        write_lmdb(tmp_path / "striped" / shard_name(number, 3), RECORDS[number::3])
    return tmp_path


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("source", ["striped", "striped/shard_*"])
def test_stripes_train_as_the_whole_database_does(folder, size, source):
    whole = over_ranks.together(net(folder / "whole"), 1, passes=6, seed=3)
    striped = over_ranks.together(net(folder / source), size, passes=6, seed=3)
    over_ranks.assert_same(striped, whole)


def test_synthetic_records_come_in_order_on_any_number_of_ranks():
    source = "synthetic:20x3x4x4:5:9"
    alone = over_ranks.together(net(source), 1, passes=4)
    over_ranks.assert_same(over_ranks.together(net(source), 3, passes=4), alone)
    reader = SyntheticReader(source)
    labels = [reader.decode(value)[1] for _, value in reader.read(range(20))]
    assert np.concatenate([blobs["label"] for blobs in alone]).tolist() == (labels * 2)[:28]
