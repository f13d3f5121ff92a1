"""Wrong inputs, on one rank and on several: one line that says what is wrong, and an end for all ranks alike.

wrong_inputs.py has them. Failing well is exit code 2 on every rank, one line of error, no traceback, no file written,
nothing that a terminal would obey.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import nets
import numpy as np
import pytest
import wrong_inputs
from bad_input import SOLVER, edit, errors, files
from mpi4py import MPI
from PIL import Image
from unsealed import unseal

from readers import write_mean
from scaffe.cli import main
from scaffe.parallel.world import World

COMM = MPI.COMM_WORLD


def words(row: wrong_inputs.Wrong) -> list[str]:
    """Return a row's command line."""
    return row.command.split() if isinstance(row.command, str) else row.command


ROWS = wrong_inputs.table()
FIRST = {words(row)[0]: row.name for row in reversed(ROWS) if not row.over_ranks}  # of each command
ONE = [row for row in ROWS if row.alone or row.name in FIRST.values()]  # of the others two ranks tell as much
TOGETHER = [row for row in ROWS if not row.alone][: None if COMM.size < 3 else 1]  # two ranks tell as much as three
ALONE = [row for row in ROWS if row.alone]


def prepared(folder: Path) -> None:
    """Fill a folder with what wrong_inputs.py says that there is; but weights and states."""
    os.chdir(folder)
    nets.write_images(folder / "db", 20, (1, 4, 4))
    net = nets.softmax_regression("db")
    Path("net.prototxt").write_text(net)
    Path("solver.prototxt").write_text(SOLVER)
    head = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 4 dim: 4 } } }'
    Path("deploy.prototxt").write_text(head + net[net.index('layer {\n  name: "ip"') : net.rindex("layer {")])
    write_mean("mean.binaryproto", np.zeros((3, 4, 4), np.float32))
    Image.new("L", (4, 4)).save("image.png")
    for name, content in {
        "list": "image.png 0\n", "empty": "", "bad_list": "image.png\n", "gone_list": "gone.png 0\n",
        "zero_list": "a\0b.png 0\n", "h5_list": "data.h5\n",
    }.items():  # fmt: skip
        Path(name).write_text(content)
    import h5py

    with h5py.File("data.h5", "w") as file:
        file["y"] = np.zeros((4, 3))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder of what is right. Collective: training leaves the weights and states."""
    before = os.getcwd()
    if pytest.importorskip("h5py") and COMM.rank == 0:
        folder = tmp_path_factory.mktemp("right")
        prepared(folder)
    folder = COMM.bcast(folder if COMM.rank == 0 else None)
    os.chdir(folder)
    for form in ("BINARYPROTO", "HDF5"):
        if COMM.rank == 0:
            Path("solver.prototxt").write_text(SOLVER + f"snapshot_format: {form}\n")
        COMM.Barrier()
        assert main(["train", "--solver", "solver.prototxt"]) == 0
    if COMM.rank == 0:
        Path("solver.prototxt").write_text(SOLVER)
        for end in ("", ".h5"):
            shutil.move(f"snap_iter_4.solverstate{end}", f"last.solverstate{end}")
            unseal(shutil.copy(f"snap_iter_4.caffemodel{end}", f"w.caffemodel{end}"))
            unseal(shutil.copy(f"last.solverstate{end}", f"s.solverstate{end}"))
            os.unlink(f"snap_iter_2.caffemodel{end}")
            os.unlink(f"snap_iter_2.solverstate{end}")
    os.chdir(before)
    return folder


def says(line: str, said: str) -> bool:
    """Say whether the parts of `said`, around `.*`, are in a line one after the other; any of its forms around `|`."""
    return any(re.search(".*".join(map(re.escape, form.split(".*"))), line) for form in said.split("|"))


@pytest.fixture
def together(monkeypatch):
    """Let an error that would end the job, since ranks don't raise it at one point, fail the test instead."""
    fail = World.fail

    def told(world: World, error: BaseException) -> int | str:
        return fail(world, error) if world.is_alike(error) else f"aborts: {error!r}"

    monkeypatch.setattr(World, "fail", told)


def refuse(row, base, factory, capsys, monkeypatch) -> None:
    """Make the wrong input, run the command on all ranks, and look at how it ended. Collective."""
    folder = COMM.bcast(factory.mktemp("wrong") / "it" if COMM.rank == 0 else None)
    if COMM.rank == 0:
        shutil.copytree(base, folder)
        monkeypatch.chdir(folder)
        row.make()
        before = files(folder)
    COMM.Barrier()
    monkeypatch.chdir(folder)
    capsys.readouterr()
    try:
        code = main(words(row))
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    ends = COMM.gather((code, errors(err), "Traceback" in out + err))
    if COMM.rank:
        return
    lines = [line for _, told, _ in ends for line in told]
    assert len(lines) == 1 and lines[0].startswith("scaffe: "), lines
    codes = [code for code, _, _ in ends]
    others = {0, 2} if wrong_inputs.is_tool(words(row)) else {2}
    assert codes[0] == 2 and len({*codes[1:]}) < 2 and others.issuperset(codes[1:]), err
    assert says(lines[0], row.said), lines[0]
    assert lines[0].isprintable() and not any(traced for _, _, traced in ends)
    assert files(folder) == before
    shutil.rmtree(folder)


@pytest.mark.mpi_skip
@pytest.mark.parametrize("row", ONE, ids=[row.name for row in ONE])
def test_a_wrong_input_is_told_in_one_line(row, base, tmp_path_factory, capsys, monkeypatch):
    refuse(row, base, tmp_path_factory, capsys, monkeypatch)


@pytest.mark.mpi
@pytest.mark.parametrize("row", TOGETHER, ids=[row.name for row in TOGETHER])
@pytest.mark.usefixtures("together")
def test_a_wrong_input_is_told_once_by_all_ranks_together(row, base, tmp_path_factory, capsys, monkeypatch):
    refuse(row, base, tmp_path_factory, capsys, monkeypatch)


@pytest.mark.mpi
@pytest.mark.skipif(COMM.size > 2, reason="two ranks tell as much as three")
def test_what_nobody_wants_is_warned_of_once(base, tmp_path_factory, capsys, monkeypatch):
    folder = COMM.bcast(tmp_path_factory.mktemp("doubts") / "it" if COMM.rank == 0 else None)
    if COMM.rank == 0:
        shutil.copytree(base, folder)
        text = SOLVER.replace("base_lr: 0.01", "").replace("max_iter: 4", "")
        (folder / "solver.prototxt").write_text(text)
        edit(folder / "net.prototxt", 'type: "SoftmaxWithLoss"', 'type: "SoftmaxWithLoss" loss_weight: 0')
    COMM.Barrier()
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert main(["train", "--solver", "solver.prototxt"]) == 0
    lines = COMM.gather([line for line in capsys.readouterr().err.splitlines() if line.startswith("W")])
    if COMM.rank == 0:
        assert [len(each) for each in lines] == [3, 0], lines
        assert "base_lr is missing" in lines[0][0] and "has no loss" in lines[0][1] and "max_iter" in lines[0][2]


@pytest.mark.mpi_skip  # it starts an mpirun of its own
@pytest.mark.parametrize("row", ALONE, ids=[row.name for row in ALONE])
def test_a_record_that_one_rank_reads_ends_them_all(row, base, tmp_path, mpirun, monkeypatch):
    shutil.copytree(base, tmp_path / "it")
    monkeypatch.chdir(tmp_path / "it")
    row.make()
    before = files(tmp_path)
    run = mpirun(2, sys.executable, "-m", "scaffe", *words(row), cwd=tmp_path / "it")
    lines = [line for line in run.stderr.replace("\0", "").splitlines() if line.startswith("scaffe: ")]
    assert run.returncode != 0 and "Traceback" not in run.stderr
    assert len(lines) == 1 and says(lines[0], row.said), run.stderr
    left = files(tmp_path)
    left.pop(tmp_path / "it/snap.lock", None)  # of a job that was ended from outside; the next takes it over
    assert left == before
