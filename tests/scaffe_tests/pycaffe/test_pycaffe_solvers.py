"""pycaffe's classes of solvers, get_solver and NCCL in a program of one process."""

from __future__ import annotations

import nets
import numpy as np
import pytest

import scaffe.pycaffe as caffe
from scaffe.errors import LaunchError, ScaffeError
from scaffe.pycaffe import processes, ranks

CLASSES = {
    "SGD": caffe.SGDSolver,
    "Nesterov": caffe.NesterovSolver,
    "AdaGrad": caffe.AdaGradSolver,
    "RMSProp": caffe.RMSPropSolver,
    "AdaDelta": caffe.AdaDeltaSolver,
    "Adam": caffe.AdamSolver,
}


@pytest.fixture(autouse=True)
def group(monkeypatch):
    """The name of a group that new_uid leaves in the environment ends with the test."""
    monkeypatch.setenv(processes.UID, "")


@pytest.fixture
def file(images, tmp_path):
    """Return a function that writes a solver file with a train and a test net."""

    def write(**fields):
        fields = {"momentum": 0.0, "weight_decay": 0.0, "test_iter": [2], "test_interval": 100, **fields}
        return str(nets.write_solver(tmp_path, nets.softmax_regression(images), **fields))

    return write


@pytest.mark.parametrize("kind", CLASSES)
def test_the_class_decides_the_update_rule_whatever_the_file_says(file, kind):
    other = "Adam" if kind == "SGD" else "SGD"
    solver = CLASSES[kind](file(type=other))
    assert (solver.parts.rule.kind, solver.param.type) == (kind, kind)
    solver.close()


@pytest.mark.parametrize("kind", [*CLASSES, "LARS"])
def test_get_solver_returns_an_object_of_the_files_class(file, kind):
    solver = caffe.get_solver(file(type=kind))
    assert [one for one in CLASSES if isinstance(solver, CLASSES[one])] == [one for one in CLASSES if one == kind]
    assert isinstance(solver, caffe.Solver) and solver.parts.rule.kind == kind
    solver.close()


def test_get_solver_reports_what_the_solver_would(tmp_path):
    with pytest.raises(ScaffeError, match="absent"):
        caffe.get_solver(tmp_path / "absent.prototxt")


def test_a_loop_of_pycaffe_trains_as_step_does(file):
    """Forward, backward and apply_update by hand, each from cleared gradients, have the bits of iterations."""
    stepped, looped = (caffe.SGDSolver(file(momentum=0.9, weight_decay=0.001)) for _ in range(2))
    stepped.step(4)
    for _ in range(4):
        looped.net.clear_param_diffs()
        looped.net.forward()
        looped.net.backward()
        looped.apply_update()
    for ours, expected in zip(looped.net.params["ip"], stepped.net.params["ip"], strict=True):
        np.testing.assert_array_equal(ours.data, expected.data)
    assert (stepped.iter, looped.iter) == (4, 0)
    stepped.close()
    looped.close()


def test_attributes(file):
    solver = caffe.SGDSolver(file(base_lr=0.5, lr_policy="exp", gamma=0.5, display=7))
    assert (solver.iter, solver.lr, len(solver.test_nets)) == (0, 0.5, 1)
    solver.step(2)
    assert (solver.iter, solver.lr) == (2, 0.125)
    assert (solver.param.display, solver.param.max_iter, solver.param.layer_wise_reduce) == (7, 20, True)
    solver.test_nets[0].share_with(solver.net)
    solver.net.params["ip"][0].data[...] = 3
    assert (solver.test_nets[0].params["ip"][0].data == 3).all()
    solver.close()


def test_snapshot_and_restore(file, tmp_path):
    solver = caffe.AdamSolver(file(type="Adam"))
    solver.step(3)
    solver.snapshot()
    expected = solver.net.params["ip"][0].data.copy()
    solver.step(1)
    solver.restore(str(tmp_path / "snap_iter_3.solverstate"))
    np.testing.assert_array_equal(solver.net.params["ip"][0].data, expected)
    solver.solve(str(tmp_path / "snap_iter_3.solverstate"))
    assert solver.iter == 20
    solver.close()


# NCCL in a process that trains alone.


def test_new_uid_is_bytes_and_differs():
    first, second = caffe.NCCL.new_uid(), caffe.NCCL.new_uid()
    assert isinstance(first, bytes) and first != second


def test_nccl_alone_changes_nothing(file):
    alone, solver = caffe.SGDSolver(file()), caffe.SGDSolver(file())
    nccl = caffe.NCCL(solver, caffe.NCCL.new_uid())
    nccl.bcast()
    solver.add_callback(nccl)
    nccl(0)
    for one in (alone, solver):
        one.step(3)
    np.testing.assert_array_equal(solver.net.params["ip"][0].data, alone.net.params["ip"][0].data)
    alone.close()
    solver.close()


def test_nccl_needs_a_solver():
    with pytest.raises(TypeError, match="NCCL takes a solver and a uid, got 3"):
        caffe.NCCL(3, b"")


def test_nccl_refuses_solvers_that_have_not_met(file, monkeypatch):
    solver = caffe.SGDSolver(file())
    monkeypatch.setattr(ranks, "_set", ranks._Set(count=2))
    with pytest.raises(LaunchError, match=r"2 solvers are to train together, but 1 have met: call NCCL.new_uid"):
        caffe.NCCL(solver, b"")
    solver.close()
