"""Ranks that were started with different flags get an error; before, some waited for the others for ever."""

from __future__ import annotations

import pytest
from mpi4py import MPI

from scaffe.cli import main

pytestmark = pytest.mark.mpi(min_size=2)

LAST = MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        ("time --model net --iterations 2", "--weights w", "--weights: rank 0 has 'None', rank 1 has 'given'"),
        ("test --model net --weights w", "--iterations 3", "--iterations: rank 0 has '50', rank 1 has '3'"),
        ("train --solver s", "--snapshot auto", "--snapshot: rank 0 has 'None', rank 1 has 'given'"),
        ("compute-image-mean db", "mean", "--out: rank 0 has 'None', rank 1 has 'given'"),
    ],
)
def test_a_flag_of_one_rank_alone_is_an_error_on_all(capsys, command, more, said):
    assert main(f"{command} {more if LAST else ''}".split()) == 2
    if MPI.COMM_WORLD.rank == 0:
        said = said.replace("rank 1", f"rank {MPI.COMM_WORLD.size - 1}")
        assert f"the ranks differ in {said}" in capsys.readouterr().err


def test_files_may_lie_elsewhere_on_another_node(capsys):
    path = "there/no.prototxt" if LAST else "here/no.prototxt"
    assert main(["time", "--model", path]) == 2
    if MPI.COMM_WORLD.rank == 0:
        assert "here/no.prototxt: no such file" in capsys.readouterr().err
