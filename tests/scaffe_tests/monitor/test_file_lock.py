"""A lock on a file of numbers keeps other runs away, and no run that begins after a lost one."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from scaffe.files.lock_owner import Owner, this_process
from scaffe.monitor import file_lock
from scaffe.monitor.file_lock import FileLock


@contextmanager
def locked(path: Path, content: bytes) -> Iterator[None]:
    """Hold the lock of a file with this content."""
    path.write_bytes(content)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


LOST = {
    "ended": replace(this_process(), started=1),  # its process id is another process's by now
    "elsewhere": replace(this_process(), machine="another"),
}


@pytest.mark.parametrize("holder", LOST.values(), ids=LOST)
def test_a_lock_whose_holder_is_lost_is_taken_over_with_a_warning(tmp_path: Path, monkeypatch, holder: Owner) -> None:
    path, said = tmp_path / "run.lock", []
    monkeypatch.setattr(file_lock.log, "warning", lambda text, *given: said.append(text % given))
    with locked(path, holder.encoded()):
        lock = FileLock(str(path))
        lock.take()
    assert said == [f"{path}: taken over from {holder}, which has ended or is on another machine"]
    with pytest.raises(BlockingIOError, match=f"process {os.getpid()} "):
        FileLock(str(path)).take()
    lock.release()
    assert not path.exists()


@pytest.mark.parametrize("content", [this_process().encoded(), b""], ids=["alive", "not written yet"])
def test_a_lock_whose_holder_may_live_is_not_taken_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.lock"
    with locked(path, content), pytest.raises(BlockingIOError):
        FileLock(str(path)).take()
    assert path.read_bytes() == content


def test_who_has_lost_a_lock_to_another_machine_does_not_take_it_back(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    lock = FileLock(str(path))
    lock.take()
    path.unlink()
    with locked(path, LOST["elsewhere"].encoded()):
        for _ in range(2):
            with pytest.raises(BlockingIOError):
                lock.take()


def test_a_stale_handle_is_no_error_and_the_lock_is_taken_anew(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "run.lock"
    lock = FileLock(str(path))
    lock.take()
    fstat, calls = os.fstat, iter([True])

    def stale(descriptor: int) -> os.stat_result:
        if next(calls, False):
            raise OSError(errno.ESTALE, "Stale file handle")
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", stale)
    lock.take()
    with pytest.raises(BlockingIOError):
        FileLock(str(path)).take()
    lock.release()
    assert not path.exists()


def test_a_forked_child_leaves_its_parents_lock(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "run.lock"
    lock = FileLock(str(path))
    lock.take()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        lock.release()
    assert path.exists()


def test_a_lock_that_is_held_is_not_taken_again_unless_its_file_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock(str(path))
    assert [lock.take(), lock.take()] == [True, False]
    path.unlink()
    assert [lock.take(), lock.take()] == [True, False]
    lock.release()
