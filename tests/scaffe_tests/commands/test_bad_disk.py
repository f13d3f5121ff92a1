"""In processes of their own: the exit code that a shell sees, and disks that fill up."""

import re
import subprocess
import sys

import pytest
from bad_input import edit, files, the_error, train, trainable, trained
from conftest import environment

from scaffe.proto import NetParameter


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return trainable(tmp_path, monkeypatch)


def python(*arguments):
    """Run an interpreter of its own."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment())


def test_a_shell_sees_exit_code_2_and_one_line(folder):
    edit("net.prototxt", '"InnerProduct"', '"InnerProdukt"')
    run = python("-m", "scaffe", *train())
    assert (run.returncode, run.stdout) == (2, "")
    assert "unknown type 'InnerProdukt'" in the_error(run.stderr)


def wide(folder):
    """Make the snapshots large: two files of 4 MB each."""
    edit("net.prototxt", "num_output: 10", "num_output: 65536")


LIMITED = """
import resource, sys
from scaffe.cli import main
from scaffe.parallel.world import open_world

open_world()  # MPI writes files of its own
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
sys.exit(main(sys.argv[1:]))
"""


WRITING = pytest.mark.parametrize("writing", [["--no-snapshot-async"], []], ids=["waiting", "async"])


@WRITING
def test_a_file_that_grows_too_large_leaves_the_older_snapshot(folder, writing):
    wide(folder)
    trained(folder)
    edit("solver.prototxt", "max_iter: 4", "max_iter: 8")
    before = files(folder)
    run = python("-c", LIMITED, *train("--snapshot", "auto", *writing))
    assert run.returncode == 2
    assert re.search(r"snap_iter_6\.caffemodel: can't write \d+ bytes: file too large", the_error(run.stderr))
    assert files(folder) == before


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 12 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", disk], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"can't mount a small file system here: {mount.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@WRITING
def test_a_disk_that_fills_up_leaves_the_older_snapshot(folder, small_disk, writing):
    wide(folder)
    edit("solver.prototxt", '"snap"', f'"{small_disk}/snap"')
    run = python("-m", "scaffe", *train(*writing))
    assert run.returncode == 2
    assert re.search(r"snap_iter_4\.caffemodel: can't write \d+ bytes: no space left on device", the_error(run.stderr))
    assert {path.name for path in small_disk.iterdir()} == {"snap_iter_2.caffemodel", "snap_iter_2.solverstate"}
    assert NetParameter.FromString((small_disk / "snap_iter_2.caffemodel").read_bytes()).layer[1].name == "ip"


READ_ONLY = """
import subprocess, sys
from scaffe.cli import main
from scaffe.training.solver import Solver

act = Solver._handle
def remounting(self):
    act(self)
    if self.iter == 3:
        self.parts.snapshots.writer.join()
        for options in (["--bind"], ["-o", "remount,bind,ro"]):  # over the disk itself, on which the lock is open
            subprocess.run(["mount", *options, sys.argv[1], sys.argv[1]], check=True)
Solver._handle = remounting
sys.exit(main(sys.argv[2:]))
"""


@WRITING
def test_a_disk_that_becomes_read_only_leaves_the_older_snapshot(folder, small_disk, writing):
    edit("solver.prototxt", '"snap"', f'"{small_disk}/snap"')
    run = python("-c", READ_ONLY, small_disk, *train(*writing))
    assert run.returncode == 2
    assert "read-only file system" in the_error(run.stderr)
    subprocess.run(["umount", small_disk], check=True)
    kept = {"snap_iter_2.caffemodel", "snap_iter_2.solverstate", "snap.lock"}
    assert {path.name for path in small_disk.iterdir()} == kept
    run = python("-m", "scaffe", *train("--snapshot", "auto", *writing))
    assert run.returncode == 0
    assert f"Restored iteration 2 from {small_disk}/snap_iter_2.solverstate" in run.stderr
    assert "snap.lock" not in {path.name for path in small_disk.iterdir()}
