"""LevelDBs read by index, by many at a time, without a trace in their folder."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import LevelDBReader, LMDBReader, ReaderError, SourceError, open_database
from readers.leveldb_reader import STRIDE

COUNT = 2 * STRIDE + 17
RECORDS = [(b"%08d_x" % n, b"value %d" % n) for n in range(COUNT)]


def write(path, records):
    plyvel = pytest.importorskip("plyvel", reason="plyvel is not installed")
    with plyvel.DB(str(path), create_if_missing=True) as database, database.write_batch() as batch:
        for key, value in records:
            batch.put(key, value)
    return path


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    return write(tmp_path_factory.mktemp("level") / "db", RECORDS)


@pytest.fixture(scope="module")
def reader(db):
    with LevelDBReader(db) as reader:
        yield reader


@given(order=st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=12))
def test_records_are_read_in_any_order(reader, order):
    assert len(reader) == COUNT
    assert reader.read(order) == [RECORDS[index] for index in order]


def state(folder):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path(folder).iterdir()}


def test_two_readers_read_a_folder_that_can_not_be_written_and_leave_nothing(db, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = state(db)
    db.chmod(0o500)
    with LevelDBReader(db) as one, LevelDBReader(db) as other:
        assert one.read([5, 6]) == other.read([5, 6]) == RECORDS[5:7]
        assert len(os.listdir(tmp_path)) == 2
    forgotten = LevelDBReader(db)
    forgotten.read([3])
    del forgotten
    gc.collect()
    db.chmod(0o700)
    assert os.listdir(tmp_path) == []
    assert state(db) == before


def test_caffes_leveldb_holds_what_its_lmdb_holds(cases):
    pytest.importorskip("plyvel", reason="plyvel is not installed")
    level, lmdb = (open_database(cases / "caffe/artefacts" / name) for name in ("train_leveldb", "train_lmdb"))
    assert (type(level), type(lmdb), len(level)) == (LevelDBReader, LMDBReader, len(lmdb))
    assert level.read(range(len(level))) == lmdb.read(range(len(lmdb)))


def test_what_can_not_be_read_is_named(tmp_path):
    write(tmp_path / "empty", [])
    damaged = write(tmp_path / "damaged", RECORDS[:9])
    (damaged / "CURRENT").write_text("MANIFEST-000099\n")
    expected = {
        "nowhere": "nowhere: expected a LevelDB folder, which holds a file CURRENT",
        "empty": "empty: the LevelDB holds no records",
        "damaged": "damaged: the LevelDB can't be opened: .*MANIFEST-000099",
    }
    for name, text in expected.items():
        with pytest.raises(SourceError, match=text):
            LevelDBReader(tmp_path / name)


def test_a_damaged_record_is_an_error(tmp_path):
    db = write(tmp_path / "db", [(b"%d" % n, os.urandom(5000)) for n in range(50)])
    [log] = db.glob("*.log")
    content = bytearray(log.read_bytes())
    content[60000] ^= 0xFF
    log.write_bytes(content)
    with pytest.raises(SourceError, match="db: "):
        LevelDBReader(db).read(range(50))


def test_without_plyvel_it_is_said_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "CURRENT").write_text("MANIFEST-000001\n")
    monkeypatch.setitem(sys.modules, "plyvel", None)
    with pytest.raises(ReaderError, match=r"pip install 'scaffe\[leveldb\]'"):
        open_database(tmp_path)


def test_a_reader_in_a_cycle_is_closed_by_the_search_for_garbage(db):
    code = """
import gc, sys
from readers import LevelDBReader
for _ in range(3):
    reader = LevelDBReader(sys.argv[1])
    reader.read([0])
    reader.itself = reader
    del reader
    gc.collect()
"""
    ended = subprocess.run([sys.executable, "-c", code, db], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
