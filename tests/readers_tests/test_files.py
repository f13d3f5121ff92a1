"""Files that appear complete or not at all: under temporary names that nobody can foresee, through no links."""

import os
import re

import numpy as np
import pytest

from readers import HDF5Writer, SourceError, replace_file
from readers.files import TEMPORARY, check_folder_of

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
def test_a_device_or_pipe_is_not_replaced(tmp_path, link):
    """Root could: a file at /dev/null would get all that is thrown away."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = pipe
    if link:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with pytest.raises(OSError, match="is a device or a pipe; name a file"):
        replace_file(path, b"content")
    for refused in (check_folder_of, HDF5Writer):
        if refused is HDF5Writer:
            pytest.importorskip("h5py")
        with pytest.raises(SourceError, match="is a device or a pipe; name a file"):
            refused(path)
    assert pipe.is_fifo() and path.is_symlink() == link and len(list(tmp_path.iterdir())) == 1 + link
