"""LevelDBs that are written: as plyvel reads them, complete or not at all, and never in place of another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from readers import (
    DatabaseWriter,
    LevelDBReader,
    ReaderError,
    SourceError,
    compute_image_mean,
    convert_digits,
    convert_imageset,
    database_writer,
    open_database,
    write_database,
)

ROOT = Path(__file__).resolve().parents[2]
RECORDS = [(b"%06d" % number, os.urandom(500)) for number in range(300)]

KILLED = """if True:
    import os, signal, sys
    from readers import database_writer, write_database

    def records():
        for number in range(1000):
            if number == 600:
                os.kill(os.getpid(), signal.SIGKILL)
            yield b"%06d" % number, bytes(500)

    database_writer.CHUNK_BYTES = 1 << 14
    write_database(sys.argv[1], records(), "leveldb")
"""


@pytest.fixture
def plyvel():
    return pytest.importorskip("plyvel", reason="plyvel is not installed")


def test_records_are_those_that_plyvel_reads(tmp_path, plyvel, monkeypatch):
    monkeypatch.setattr(database_writer, "CHUNK_BYTES", 10_000)
    assert write_database(tmp_path / "db", iter(RECORDS), "leveldb") == 300
    assert os.listdir(tmp_path) == ["db"]
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=False) as database:
        assert list(database) == RECORDS


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_a_last_transaction_of_one_record_is_written_too(tmp_path, plyvel, monkeypatch, backend):
    monkeypatch.setattr(database_writer, "CHUNK_BYTES", 1000)  # two records
    assert write_database(tmp_path / "db", RECORDS[:3], backend) == 3
    with open_database(tmp_path / "db") as database:
        assert database.read(range(3)) == RECORDS[:3]


def test_keys_that_do_not_ascend_are_sorted(tmp_path, plyvel):
    write_database(tmp_path / "db", reversed(RECORDS), "leveldb")
    with LevelDBReader(tmp_path / "db") as reader:
        assert reader.read(range(300)) == RECORDS


def test_a_kill_leaves_nothing_at_the_databases_name(tmp_path, plyvel):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [left] = os.listdir(tmp_path)
    assert left.startswith("db.") and left.endswith(".tmp")
    assert write_database(tmp_path / "db", RECORDS, "leveldb") == 300


def test_what_fails_leaves_nothing(tmp_path, plyvel):
    def records():
        yield RECORDS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_database(tmp_path / "db", records(), "leveldb")
    with pytest.raises(SourceError, match="db: there are no records to write"):
        write_database(tmp_path / "db", [], "leveldb")
    with pytest.raises(SourceError, match="nowhere/db: can't be written: no such file"):
        write_database(tmp_path / "nowhere/db", RECORDS, "leveldb")
    assert not os.listdir(tmp_path)


def test_a_disk_without_room_leaves_nothing(tmp_path, plyvel):
    program = """if True:
        import os, resource, signal, sys
        from readers import SourceError, write_database
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            write_database(sys.argv[1], ((b"%06d" % n, os.urandom(5000)) for n in range(9000)), "leveldb")
        except SourceError as error:
            print(error)
    """
    command = [sys.executable, "-c", program, str(tmp_path / "db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.stdout.startswith(f"{tmp_path}/db: can't be written: IO error: "), done.stderr
    assert done.stdout.count("\n") == 1
    assert not os.listdir(tmp_path)


def test_a_path_that_exists_is_left_alone(tmp_path, plyvel):
    write_database(tmp_path / "db", RECORDS, "leveldb")
    for replace in (False, True):
        with pytest.raises(SourceError, match="db exists already: remove it or choose another name"):
            write_database(tmp_path / "db", RECORDS[:1], "leveldb", replace)
    with LevelDBReader(tmp_path / "db") as reader:
        assert len(reader) == 300


def test_images_and_digits_become_leveldbs_with_the_mean_of_the_lmdbs(tmp_path, cases, plyvel):
    artefacts = cases / "caffe/artefacts"
    for backend in ("lmdb", "leveldb"):
        convert_imageset(artefacts / "images", artefacts / "list.txt", tmp_path / backend, backend=backend)
        compute_image_mean(tmp_path / backend, tmp_path / f"{backend}.binaryproto")
    assert (tmp_path / "leveldb.binaryproto").read_bytes() == (artefacts / "mean.binaryproto").read_bytes()
    with LevelDBReader(tmp_path / "leveldb") as ours, LevelDBReader(artefacts / "train_leveldb") as theirs:
        assert ours.read(range(len(ours))) == theirs.read(range(len(theirs)))
    pytest.importorskip("sklearn")
    assert [len(LevelDBReader(path)) for path in convert_digits(tmp_path, "leveldb")] == [1437, 360]


def test_what_is_no_backend_and_shards_of_a_leveldb_are_refused(tmp_path, cases, plyvel):
    artefacts = cases / "caffe/artefacts"
    with pytest.raises(ReaderError, match="unknown backend 'rocksdb': expected one of lmdb, leveldb"):
        write_database(tmp_path / "db", RECORDS, "rocksdb")
    with pytest.raises(ReaderError, match="only an LMDB has shards: leave out the 2 shards, or write an LMDB"):
        convert_imageset(artefacts / "images", artefacts / "list.txt", tmp_path / "db", shards=2, backend="leveldb")
    assert not os.listdir(tmp_path)


def test_without_plyvel_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plyvel", None)
    with pytest.raises(ReaderError, match=r"pip install 'scaffe\[leveldb\]'"):
        DatabaseWriter(tmp_path / "db", "leveldb")
