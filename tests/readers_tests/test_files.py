"""Files that appear complete or not at all: under temporary names that nobody can foresee, through no links; locks."""

import errno
import fcntl
import os
import re
import socket
import subprocess
import sys

import numpy as np
import pytest

from readers import HDF5Writer, SourceError, replace_file
from readers.files import TEMPORARY, check_folder_of, lock, open_input, read_input

ANY = "0123456789abcdef"


@pytest.fixture
def known(monkeypatch):
    """Let somebody know what the next temporary name adds, and return that."""
    monkeypatch.setattr("secrets.token_hex", lambda length: ANY[: 2 * length])
    return f".{ANY}.tmp"


def test_a_temporary_name_is_another_each_time(tmp_path, monkeypatch):
    names = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (names.append(old), replace(old, new)))
    for content in (b"one", b"two"):
        replace_file(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == b"two"
    assert len(set(names)) == 2
    for name in names:
        assert re.fullmatch(re.escape(str(tmp_path / "file")) + TEMPORARY, name)


@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nowhere"])
def test_a_link_in_its_place_is_not_followed(tmp_path, known, there):
    victim = tmp_path / "victim"
    if there:
        victim.write_bytes(b"mine")
    (tmp_path / f"file{known}").symlink_to(victim)
    with pytest.raises(FileExistsError):
        replace_file(tmp_path / "file", b"theirs")
    assert not (tmp_path / "file").exists()
    assert victim.read_bytes() == b"mine" if there else not victim.exists()
    assert (tmp_path / f"file{known}").is_symlink()  # it is not ours to remove


def test_an_hdf5_writer_follows_no_link(tmp_path, known):
    pytest.importorskip("h5py")
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / f"out.h5{known}").symlink_to(victim)
    writer = HDF5Writer(tmp_path / "out.h5")
    with pytest.raises(SourceError, match="file exists"):
        writer.append(rows=np.zeros((2, 3)))
    assert victim.read_bytes() == b"mine"


def test_a_files_permissions_are_the_users_own(tmp_path):
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_the_content_is_on_disk_before_the_file_has_its_name(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: (calls.append(name), real(*args))[1])
    replace_file(tmp_path / "it", b"content")
    assert calls == ["fsync", "replace", "fsync"]  # the folder's own last


@pytest.mark.parametrize("link", [False, True])
def test_a_pipe_is_written_into_and_not_replaced(tmp_path, link):
    """Root could replace it: a file at /dev/null would get all that is thrown away."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = pipe
    if link:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with pytest.raises(OSError, match="is a pipe that no program reads from"):
        replace_file(path, b"content")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_file(path, [b"con", b"tent"])
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    check_folder_of(path)
    assert pipe.is_fifo() and path.is_symlink() == link and len(list(tmp_path.iterdir())) == 1 + link


def test_streams_are_no_hdf5_files_and_sockets_no_outputs(tmp_path):
    pytest.importorskip("h5py")
    with pytest.raises(SourceError, match="is a device or a pipe; name a file"):
        HDF5Writer("/dev/null")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
        for refuse in (check_folder_of, lambda path: replace_file(path, b"content")):
            with pytest.raises((OSError, SourceError), match="is a device or a pipe; name a file"):
                refuse(tmp_path / "socket")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_the_standard_output_is_written_into_wherever_it_goes(tmp_path, name):
    """Also where it goes to a file: the names in /dev stay."""
    out, before = tmp_path / "out", os.lstat("/dev/stdout")
    program = f"from readers import replace_file; replace_file({name!r}, b'content')"
    with out.open("wb") as file:
        file.write(b"before, ")
        file.flush()
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)
    assert out.read_bytes() == b"before, content" and os.lstat("/dev/stdout").st_ino == before.st_ino


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom", "pipe", "link", "socket"])
def test_what_has_no_end_or_waits_is_not_opened(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.symlink("pipe", "link")
    if name == "socket":
        with socket.socket(socket.AF_UNIX) as one, pytest.raises(OSError):
            one.bind(name)
            open_input(name)
        return
    with pytest.raises(OSError, match="is a device or a pipe; name a file"):
        open_input(name)


def test_a_folder_is_told_as_one_and_a_pipe_without_a_name_is_read(tmp_path):
    with pytest.raises(IsADirectoryError):
        open_input(tmp_path)
    out, into = os.pipe()
    with open(into, "wb") as file:
        file.write(b"of a shell's <(...)")
    assert read_input(f"/dev/fd/{out}") == b"of a shell's <(...)"
    os.close(out)
    assert read_input(os.devnull) == b""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_lock_is_held_by_one_until_it_is_closed(tmp_path, kind):
    path = tmp_path / kind
    path.mkdir() if kind == "folder" else path.touch()
    one, other = (os.open(path, os.O_RDONLY) for _ in range(2))
    lock(one)
    lock(one)
    with pytest.raises(BlockingIOError):
        lock(other)
    os.close(one)
    lock(other)
    os.close(other)


def test_a_file_system_without_locks_gives_one_to_everybody(tmp_path, monkeypatch):
    def refuse(descriptor, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with open(tmp_path / "file", "w") as one, open(tmp_path / "file") as other:
        lock(one.fileno())
        lock(other.fileno())
