"""LMDBs read by index, and what is said of files that are none."""

from __future__ import annotations

import os
import threading

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import LMDBReader, SourceError, write_lmdb
from readers.lmdb_reader import STRIDE

COUNT = 3 * STRIDE + 17
RECORDS = [(b"%08d_x" % n, b"value %d" % n) for n in range(COUNT)]


@pytest.fixture(scope="module")
def long_db(tmp_path_factory):
    db = tmp_path_factory.mktemp("long") / "db"
    write_lmdb(db, RECORDS)
    return db


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "db"
    write_lmdb(path, RECORDS[:300])
    return path


def plainly_written(path, commits):
    """An LMDB written with py-lmdb alone, one transaction for each list of records."""
    with lmdb.open(str(path), map_size=1 << 24) as environment:
        for records in commits:
            with environment.begin(write=True) as transaction:
                for key, value in records:
                    transaction.put(key, value)
    return path


@given(order=st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=20))
def test_records_are_read_in_any_order(long_db, order):
    with LMDBReader(long_db) as reader:
        assert len(reader) == COUNT
        assert reader.read(order) == [RECORDS[index] for index in order]
        assert reader.read(reversed(order)) == [RECORDS[index] for index in reversed(order)]


@given(start=st.integers(0, 3 * COUNT), batch=st.integers(1, 1500), step=st.integers(0, 2500))
def test_batches_that_skip_and_wrap_are_read(long_db, start, batch, step):
    with LMDBReader(long_db) as reader:
        for first in range(start, start + 3 * (batch + step), batch + step):
            indices = [sample % COUNT for sample in range(first, first + batch)]
            assert reader.read(indices) == [RECORDS[index] for index in indices]


def test_caffes_database_is_read_in_the_order_of_its_keys(cases):
    with LMDBReader(cases / "caffe/artefacts/train_lmdb") as reader:
        keys = [key for key, _ in reader.read(range(len(reader)))]
    names = (cases / "caffe/artefacts/list.txt").read_text().split()[::2]
    assert keys == [f"{number:08d}_{name}".encode() for number, name in enumerate(names)]


def test_a_database_larger_than_the_default_map_is_read(tmp_path):
    records = [(b"%04d" % n, bytes([n]) * (1 << 20)) for n in range(24)]
    write_lmdb(tmp_path / "db", records)
    with LMDBReader(tmp_path / "db") as reader:
        assert reader.read([23, 0]) == [records[23], records[0]]


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_the_newest_transaction_counts(tmp_path, commits):
    path = plainly_written(tmp_path / "db", [RECORDS[100 * n : 100 * n + 100] for n in range(commits)])
    with LMDBReader(path) as reader:
        assert len(reader) == 100 * commits
        assert reader.read([100 * commits - 1]) == [RECORDS[100 * commits - 1]]


def test_several_readers_share_a_file_under_any_name(db, tmp_path):
    (tmp_path / "link").symlink_to(db)
    first, second, third = LMDBReader(db), LMDBReader(tmp_path / "link"), LMDBReader(db)
    assert first.read([7]) == second.read([7]) == third.read([7]) == [RECORDS[7]]
    first.close()
    second.close()
    assert third.read([8, 2]) == [RECORDS[8], RECORDS[2]]
    third.close()
    lmdb.open(str(db), readonly=True, lock=False).close()  # would be refused if the file were still open here


def test_a_closed_reader_opens_again(db):
    reader = LMDBReader(db)
    assert reader.read([5]) == [RECORDS[5]]
    reader.close()
    reader.close()
    assert reader.read([4]) == [RECORDS[4]]


def test_threads_may_share_a_reader(db):
    reader, wrong = LMDBReader(db), []

    def read(offset: int) -> None:
        for index in range(offset, 300 + offset):
            if reader.read([index % 300]) != [RECORDS[index % 300]]:
                wrong.append(index)

    threads = [threading.Thread(target=read, args=(offset,)) for offset in (0, 100, 250)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_reading_leaves_the_folder_as_it_was(db):
    before = sorted(os.listdir(db))
    with LMDBReader(db) as reader:
        reader.read([0])
    assert sorted(os.listdir(db)) == before == ["data.mdb"]


@pytest.mark.parametrize("index", [-1, 300])
def test_an_index_outside_is_an_error(db, index):
    with LMDBReader(db) as reader, pytest.raises(IndexError, match=f"record {index} of 300"):
        reader.read([index])


@given(part=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused_before_it_is_mapped(tmp_path_factory, part):
    db = tmp_path_factory.mktemp("cut") / "db"
    write_lmdb(db, RECORDS[:300])
    file = db / "data.mdb"
    os.truncate(file, int(part * file.stat().st_size))
    with pytest.raises(SourceError, match="truncated|not an LMDB data file"):
        LMDBReader(db)


def test_the_missing_bytes_of_a_truncated_file_are_told(db):
    size = (db / "data.mdb").stat().st_size
    os.truncate(db / "data.mdb", size - 1)
    with pytest.raises(SourceError, match=f"data.mdb: truncated: {size - 1} of {size} bytes"):
        LMDBReader(db)


def test_a_file_that_is_truncated_or_replaced_before_the_first_read_is_refused(db, tmp_path):
    reader, other = LMDBReader(db), LMDBReader(db)
    os.replace(plainly_written(tmp_path / "other", [RECORDS[:200]]) / "data.mdb", db / "data.mdb")
    with pytest.raises(SourceError, match="has changed"):
        reader.read([0])
    os.truncate(db / "data.mdb", 8192)
    with pytest.raises(SourceError, match="truncated"):
        other.read([0])


def test_a_damaged_page_is_an_error_of_the_source(db):
    size = (db / "data.mdb").stat().st_size
    with open(db / "data.mdb", "r+b") as file:
        file.seek(8192)
        file.write(b"\xa5" * (size - 8192))
    with LMDBReader(db) as reader, pytest.raises(SourceError, match=str(db)):
        reader.read(range(300))


def test_an_empty_database_is_refused(tmp_path):
    lmdb.open(str(tmp_path / "db")).close()
    with pytest.raises(SourceError, match="holds no records"):
        LMDBReader(tmp_path / "db")
    with pytest.raises(SourceError, match="holds no records"):
        LMDBReader(plainly_written(tmp_path / "db", [[]]))


def test_what_is_no_lmdb_is_named(tmp_path):
    (tmp_path / "list.txt").write_text("a.png 0\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "leveldb").mkdir()
    (tmp_path / "leveldb/CURRENT").write_text("MANIFEST-000001\n")
    (tmp_path / "text").mkdir()
    (tmp_path / "text/data.mdb").write_text("no database\n" * 9999)
    for name, text in {
        "missing": "no such file",
        "list.txt": "expected an LMDB folder.*got a file",
        "folder": "without a data.mdb",
        "leveldb": "LevelDB",
        "text": "not an LMDB data file",
    }.items():
        with pytest.raises(SourceError, match=f"{name}.*{text}"):
            LMDBReader(tmp_path / name)


def test_a_relative_path_that_is_missing_tells_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=f"train_lmdb: .*relative to {tmp_path}"):
        LMDBReader("train_lmdb")


def test_a_file_without_permission_is_named(db, request):
    (db / "data.mdb").chmod(0)
    request.getfixturevalue("not_root")
    with pytest.raises(SourceError, match="permission denied"):
        LMDBReader(db)
