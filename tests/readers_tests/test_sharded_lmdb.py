"""Stripes of a database, read as the whole."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import LMDBReader, ShardedLMDB, SourceError, open_database, write_lmdb
from readers.sharded_lmdb import shard_name

COUNT = 101
RECORDS = [(b"%08d_x" % n, b"value %d" % n) for n in range(COUNT)]


def stripe(folder, count: int):
    """Write RECORDS striped over `count` LMDBs."""
    folder.mkdir()
    for number in range(count):
        write_lmdb(folder / shard_name(number, count), RECORDS[number::count])
    return folder


@pytest.fixture(scope="module")
def striped(tmp_path_factory):
    return {count: stripe(tmp_path_factory.mktemp("striped") / "db", count) for count in (1, 2, 3, 7)}


@pytest.fixture
def db(tmp_path):
    return stripe(tmp_path / "db", 3)


@given(count=st.sampled_from([1, 2, 3, 7]), order=st.lists(st.integers(0, COUNT - 1), max_size=30))
def test_the_order_is_that_of_the_whole_database(striped, count, order):
    with open_database(striped[count]) as reader:
        assert isinstance(reader, ShardedLMDB)
        assert len(reader) == COUNT
        assert [(key, value) for (_, key), value in reader.read(order)] == [RECORDS[index] for index in order]


def test_a_glob_names_the_same_stripes(db):
    with open_database(f"{db}/shard_*") as reader, open_database(db) as other:
        assert reader.read(range(COUNT)) == other.read(range(COUNT))


def test_folders_of_any_name_may_be_stripes(tmp_path):
    for number, name in enumerate("abc"):
        write_lmdb(tmp_path / name, RECORDS[number::3])
    with open_database(str(tmp_path / "[abc]")) as reader:
        assert [value for _, value in reader.read(range(COUNT))] == [value for _, value in RECORDS]


def test_messages_name_the_stripe(db):
    with open_database(db) as reader:
        [(key, _)] = reader.read([7])
        assert reader.describe(key) == f"{db}/shard_00001_of_00003_lmdb: record '00000007_x'"


@pytest.mark.parametrize("index", [-1, COUNT])
def test_an_index_outside_is_an_error(db, index):
    with open_database(db) as reader, pytest.raises(IndexError, match=f"db: record {index} of {COUNT}"):
        reader.read([0, index])


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_stripe_is_named(db, missing):
    shutil.rmtree(db / shard_name(missing, 3))
    with pytest.raises(SourceError, match=f"db: expected 3 shards, but there is no {shard_name(missing, 3)}"):
        open_database(db)


def test_stripes_that_do_not_belong_together_are_refused(db, tmp_path):
    os.rename(stripe(tmp_path / "other", 2) / shard_name(0, 2), db / shard_name(0, 2))
    with pytest.raises(SourceError, match="expected . shards"):
        open_database(db)


def test_lmdbs_whose_numbers_of_records_are_no_stripes_are_refused(tmp_path):
    for name, records in (("a", 10), ("b", 8)):
        write_lmdb(tmp_path / name, RECORDS[:records])
    with pytest.raises(SourceError, match="a: expected 9 records in stripe 0 of 2 with 18 records, got 10"):
        open_database(str(tmp_path / "[ab]"))


def test_a_truncated_stripe_is_named(db):
    os.truncate(db / shard_name(1, 3) / "data.mdb", 9000)
    with pytest.raises(SourceError, match="shard_00001_of_00003_lmdb/data.mdb: truncated"):
        open_database(db)


def test_a_glob_that_matches_nothing_and_a_folder_without_databases_are_told(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="nothing_.*: the LMDB or LevelDB can't be opened: no such file"):
        open_database(tmp_path / "nothing_*")
    with pytest.raises(SourceError, match="empty: expected a folder with data.mdb .* or CURRENT .*, got one without"):
        open_database(tmp_path / "empty")


def test_a_plain_lmdb_is_still_one(tmp_path):
    write_lmdb(tmp_path / "db", RECORDS)
    assert isinstance(open_database(tmp_path / "db"), LMDBReader)
