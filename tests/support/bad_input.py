"""What tests of bad input share: something that can be trained, and a command that must fail, well.

Failing well is exit code 2, one line that says what is wrong and where, nothing written, no traceback.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import nets
import numpy as np
import pytest

from readers import encode, write_lmdb
from scaffe.cli import main

LOG_LINE = re.compile(r"[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} ")
NET = nets.softmax_regression("db")
SOLVER = """
net: "net.prototxt"
base_lr: 0.01
lr_policy: "fixed"
momentum: 0.9
max_iter: 4
snapshot: 2
snapshot_prefix: "snap"
random_seed: 1
"""


def trainable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make `folder` the working directory, with a net that can be trained: net.prototxt, solver.prototxt and db."""
    monkeypatch.chdir(folder)
    nets.write_images(folder / "db", 20, (1, 4, 4))
    Path("net.prototxt").write_text(NET)
    Path("solver.prototxt").write_text(SOLVER)
    return folder


class Refused:
    """Run a command that must fail; return its one line of error. It may not touch any file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        self.folder, self.capsys = folder, capsys

    def __call__(self, *arguments: object) -> str:
        before = files(self.folder)
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        line = the_error(self.capsys.readouterr().err)
        assert code == 2
        assert files(self.folder) == before
        return line


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def errors(stderr):
    """Return the lines that are not of the log."""
    return [line for line in stderr.splitlines() if not LOG_LINE.match(line)]


def the_error(stderr):
    """Return the one line that is not of the log."""
    lines = errors(stderr)
    assert len(lines) == 1, stderr
    assert lines[0].startswith("scaffe: ")
    return lines[0]


def edit(path, old, new):
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new, 1))


def line_of(text, word):
    return text[: text.index(word)].count("\n") + 1


def train(*more):
    return ("train", "--solver", "solver.prototxt", *more)


def trained(folder):
    """Train to iteration 4, which leaves snapshots of iterations 2 and 4."""
    assert main(train()) == 0
    return folder / "snap_iter_4.caffemodel", folder / "snap_iter_4.solverstate"


def write_records(*records):
    """Write an LMDB 'db' anew, of records with the keys 00000000, 00000001 ..."""
    os.unlink("db/data.mdb")
    os.rmdir("db")
    write_lmdb("db", [(b"%08d" % i, record) for i, record in enumerate(records)])


def grey(side=4, label=0):
    return encode(np.full((1, side, side), 100, np.uint8), label)
