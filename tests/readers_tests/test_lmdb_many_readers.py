"""One LMDB and many readers: what they need, and what becomes of them when the file changes under them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from readers import LMDBReader, SourceError, write_lmdb

ROOT = Path(__file__).resolve().parents[2]
RECORDS = [(b"%08d_x" % n, b"%d" % n * 100) for n in range(3000)]

SIXTY_FOUR = """if True:
    import os, sys
    from readers import LMDBReader

    PROCESSES = 64
    opened, go = os.pipe(), os.pipe()
    children = []
    for number in range(PROCESSES):
        if pid := os.fork():
            children.append(pid)
            continue
        reader = LMDBReader(sys.argv[1])
        reader.read([number])
        os.write(opened[1], b".")
        os.close(go[1])
        os.read(go[0], 1)  # returns when all have the file open
        found = [reader.read(range(start, start + 100)) for start in range(0, len(reader), 100)]
        total = sum(len(value) for items in found for _, value in items)
        os._exit(0 if total == int(sys.argv[2]) else 1)
    seen = 0
    while seen < PROCESSES:
        seen += len(os.read(opened[0], PROCESSES))
    os.close(go[1])
    print(sorted({os.waitpid(pid, 0)[1] for pid in children}))
"""

REPLACED = """if True:
    import lmdb, os, sys
    size = os.path.getsize(sys.argv[1] + "/data.mdb")
    with lmdb.open(sys.argv[1], map_size=size, writemap=True) as environment, environment.begin(write=True) as t:
        t.put(b"00000000_x", b"another")
"""
ONE_MORE = """if True:
    import lmdb, sys
    with lmdb.open(sys.argv[1], map_size=1 << 26) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"new", b"record")
"""

READ_ALL = """if True:
    import sys
    from readers import LMDBReader
    with LMDBReader(sys.argv[1]) as reader:
        print(len(reader.read(range(len(reader)))))
"""


@pytest.fixture
def db(tmp_path) -> Path:
    write_lmdb(tmp_path / "db", RECORDS)
    return tmp_path / "db"


def test_sixty_four_processes_have_one_file_open(db):
    total = sum(len(value) for _, value in RECORDS)
    command = [sys.executable, "-c", SIXTY_FOUR, str(db), str(total)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert (done.stdout, done.stderr) == ("[0]\n", "")
    assert os.listdir(db) == ["data.mdb"]


def test_a_folder_that_may_not_be_written_to_is_read(db, request, monkeypatch):
    (db / "data.mdb").chmod(0o444)
    db.chmod(0o555)
    db.parent.chmod(0o755)
    monkeypatch.chdir(db.parent)  # the folders above are root's alone
    request.getfixturevalue("not_root")
    with pytest.raises(PermissionError):
        Path("db/lock.mdb").touch()
    with LMDBReader("db") as reader:
        assert reader.read(range(3000)) == RECORDS


def test_a_read_only_mount_is_read(db):
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"'
    if not shutil.which("unshare") or subprocess.run([*namespace, mount, str(db)], capture_output=True).returncode:
        pytest.skip("this system lets the test mount nothing")
    read = f'{mount} && ! touch "$0/lock.mdb" 2> /dev/null && exec "$1" -c "$2" "$0"'
    command = [*namespace, read, str(db), sys.executable, READ_ALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert (done.stdout, done.stderr) == ("3000\n", "")


def test_caffes_lock_file_is_neither_needed_nor_touched(tmp_path):
    with lmdb.open(str(tmp_path / "db")) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"a", b"b")
        lock = (tmp_path / "db/lock.mdb").read_bytes()
        transaction.commit()
    (tmp_path / "db/lock.mdb").write_bytes(lock)
    with LMDBReader(tmp_path / "db") as reader:
        assert reader.read([0]) == [(b"a", b"b")]
    assert (tmp_path / "db/lock.mdb").read_bytes() == lock


def test_a_file_that_is_cut_off_while_it_is_mapped_is_an_error(db):
    size = (db / "data.mdb").stat().st_size
    with LMDBReader(db) as reader, LMDBReader(db) as other:
        assert reader.read([0]) == other.read([0]) == RECORDS[:1]
        os.truncate(db / "data.mdb", size // 2)
        for one in (reader, other):
            with pytest.raises(SourceError, match=f"data.mdb: truncated: {size // 2} of {size} bytes"):
                one.read([2999])  # a bus error otherwise
        os.truncate(db / "data.mdb", 0)
        with pytest.raises(SourceError, match="not an LMDB data file"):
            reader.read([0])


def test_a_file_that_grows_while_it_is_mapped_is_an_error(db):
    with LMDBReader(db) as reader:
        reader.read([0])
        subprocess.run([sys.executable, "-c", ONE_MORE, str(db)], check=True, timeout=900)
        with pytest.raises(SourceError, match="db: the LMDB has changed since this run began: start again"):
            reader.read([0])
        with LMDBReader(db) as later:
            assert len(later) == 3001


def test_a_file_that_another_one_replaces_is_read_to_its_end(db, tmp_path):
    with LMDBReader(db) as reader:
        reader.read([0])
        write_lmdb(db, RECORDS[:5], replace=True)
        assert reader.read(range(3000)) == RECORDS


def test_a_file_that_is_overwritten_by_one_of_the_same_size_is_an_error(db, tmp_path):
    """Its meta page says the same: only the time tells."""
    write_lmdb(tmp_path / "other", [(key, value[::-1]) for key, value in RECORDS])
    other = (tmp_path / "other/data.mdb").read_bytes()
    assert len(other) == (db / "data.mdb").stat().st_size
    with LMDBReader(db) as reader:
        assert reader.read([0]) == RECORDS[:1]
        with open(db / "data.mdb", "r+b") as file:
            file.write(other)
        os.utime(db / "data.mdb", (1, 1))  # another time, whatever the clock's tick
        for indices in ([0], [2999]):
            with pytest.raises(SourceError, match="db: the LMDB has changed since this run began: start again"):
                reader.read(indices)


def test_a_transaction_written_through_a_map_is_an_error(db):
    """The file's size and time may tell of it much later."""
    os.truncate(db / "data.mdb", 2 << 20)  # room for the transaction
    status = (db / "data.mdb").stat()
    with LMDBReader(db) as reader:
        assert reader.read([0]) == RECORDS[:1]
        subprocess.run([sys.executable, "-c", REPLACED, str(db)], check=True, timeout=900)
        os.utime(db / "data.mdb", ns=(status.st_atime_ns, status.st_mtime_ns))
        assert (db / "data.mdb").stat().st_size == status.st_size
        with pytest.raises(SourceError, match="db: the LMDB has changed"):
            reader.read([0])
