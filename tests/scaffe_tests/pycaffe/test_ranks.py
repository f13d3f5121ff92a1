"""solver_count, solver_rank and their setters: the program's numbers, or under mpirun the ranks'."""

from __future__ import annotations

import pytest

import scaffe.pycaffe as caffe
from scaffe.errors import ScaffeError
from scaffe.pycaffe import ranks


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No launcher, and nothing set."""
    for name in ("OMPI_COMM_WORLD", "PMI", "PMIX"):
        monkeypatch.delenv(f"{name}_RANK", raising=False)
        monkeypatch.delenv(f"{name}_SIZE", raising=False)
    for name in ("SLURM_STEP_ID", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ranks, "_set", ranks._Set())


@pytest.fixture
def second_of_three(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")


def test_without_a_launcher_they_are_what_the_program_sets():
    assert (caffe.solver_count(), caffe.solver_rank()) == (1, 0)
    caffe.set_solver_count(4)
    caffe.set_solver_rank(3)
    caffe.set_multiprocess(True)
    assert (caffe.solver_count(), caffe.solver_rank()) == (4, 3)


def test_under_a_launcher_they_are_the_ranks(second_of_three):
    assert (caffe.solver_count(), caffe.solver_rank()) == (3, 1)
    caffe.set_solver_count(3)
    caffe.set_solver_rank(1)
    assert (caffe.solver_count(), caffe.solver_rank()) == (3, 1)


def test_under_a_launcher_each_rank_may_have_the_one_solver_of_its_program(second_of_three):
    caffe.set_solver_count(1)
    caffe.set_solver_rank(0)
    assert (caffe.solver_count(), caffe.solver_rank()) == (3, 1)


def test_under_a_launcher_another_number_is_refused(second_of_three):
    with pytest.raises(ScaffeError, match=r"set_solver_count\(2\) on rank 1 of 3: under mpirun .* name 3"):
        caffe.set_solver_count(2)
    caffe.set_solver_count(3)
    with pytest.raises(ScaffeError, match=r"set_solver_rank\(0\) of 3 solver\(s\), on rank 1 of 3: .* is the rank"):
        caffe.set_solver_rank(0)


def test_a_process_that_a_rank_started_for_another_rank_ends_quietly(second_of_three, monkeypatch):
    monkeypatch.setattr("multiprocessing.parent_process", lambda: "the rank")
    caffe.set_solver_count(3)
    caffe.set_solver_rank(1)
    with pytest.raises(SystemExit) as ended:
        caffe.set_solver_rank(2)
    assert ended.value.code == 0
    with pytest.raises(ScaffeError, match=r"set_solver_rank\(3\)"):
        caffe.set_solver_rank(3)


def test_a_rank_that_is_no_solvers_is_refused():
    caffe.set_solver_count(2)
    with pytest.raises(ScaffeError, match=r"set_solver_rank\(2\) of 2 solver\(s\)"):
        caffe.set_solver_rank(2)


@pytest.mark.parametrize(("function", "wrong", "least"), [("set_solver_count", 0, 1), ("set_solver_rank", -1, 0)])
def test_numbers_that_can_not_be_are_refused(function, wrong, least):
    with pytest.raises(ScaffeError, match=f"{function} takes a number of {least} or more, got {wrong}"):
        getattr(caffe, function)(wrong)


def test_there_is_always_something_that_does_what_nccl_does():
    assert caffe.has_nccl() is True
