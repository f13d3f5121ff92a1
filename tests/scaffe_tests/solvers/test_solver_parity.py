"""Solvers against what Caffe computed: parameters and updates of five iterations, and the snapshot it wrote."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import scaffe
from scaffe.proto.files import read_solver_state, read_weights

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("SCAFFE_CASES", ROOT.parent / "shared")) / "parity"
CASES = sorted(path.name for path in FOLDER.glob("solver_*"))


@pytest.fixture
def solver(cases, tmp_path, monkeypatch, request):
    shutil.copytree(cases / "parity" / request.param, tmp_path / "case")
    monkeypatch.chdir(tmp_path / "case")
    solver = scaffe.get_solver("solver.prototxt")
    solver.meta = json.loads(Path("meta.json").read_text())
    with np.load("arrays.npz") as arrays:
        solver.arrays = dict(arrays)
    return solver


def sine(fill, shape):
    i = np.arange(np.prod(shape), dtype=np.float64)
    return (fill["amp"] * np.sin(fill["freq"] * i + fill["phase"]) + fill["shift"]).astype(np.float32).reshape(shape)


def assert_close(ours, caffes, what):
    assert np.abs(ours - caffes).max() <= 1e-5 * np.abs(caffes).max(), what


def feed(solver, step):
    for blob, fill in (("data", "data_fill"), ("target", "target_fill")):
        solver.net.blobs[blob].data[...] = sine(step[fill], solver.net.blobs[blob].shape)


def check_parameters(solver, t):
    for parameter in solver.net.parameters:
        blob, name = parameter.blob, f"{parameter.layer}_{parameter.index}_iter{t}"
        assert_close(blob.data, solver.arrays[f"param_{name}"].reshape(blob.shape), f"param_{name}")
        assert_close(blob.diff, solver.arrays[f"update_{name}"].reshape(blob.shape), f"update_{name}")


def check_snapshot(ours, theirs):
    for history, caffes in zip(ours[0].history, theirs[0].history, strict=True):
        assert history.shape == caffes.shape
        assert_close(np.array(history.data), np.array(caffes.data), "history")
    for layer, caffes in zip(ours[1].layer, theirs[1].layer, strict=True):
        assert (layer.name, layer.type) == (caffes.name, caffes.type)
        for blob, caffes_blob in zip(layer.blobs, caffes.blobs, strict=True):
            assert_close(np.array(blob.data), np.array(caffes_blob.data), layer.name)


def read_snapshot():
    return read_solver_state("snap_iter_5.solverstate"), read_weights("snap_iter_5.caffemodel")


@pytest.mark.skipif(not CASES, reason=f"no Caffe reference files in {FOLDER}; SCAFFE_CASES names their folder")
@pytest.mark.parametrize("solver", CASES, indirect=True)
def test_five_iterations_and_the_snapshot_are_caffes(solver):
    theirs = read_snapshot()
    for parameter in solver.net.parameters:
        initial = solver.arrays[f"param_{parameter.layer}_{parameter.index}_iter0"]
        parameter.blob.data[...] = initial.reshape(parameter.blob.shape)
    for step in solver.meta["steps"]:
        feed(solver, step)
        assert solver.lr == pytest.approx(step["lr"], rel=1e-6)
        solver.step(1)
        check_parameters(solver, step["t"] + 1)
        assert solver.net.blobs["loss"].data == pytest.approx(step["loss"], rel=1e-5)
    solver.snapshot()
    ours = read_snapshot()
    assert (ours[0].iter, ours[0].current_step) == (theirs[0].iter, theirs[0].current_step)
    check_snapshot(ours, theirs)


@pytest.mark.skipif(not CASES, reason=f"no Caffe reference files in {FOLDER}; SCAFFE_CASES names their folder")
@pytest.mark.parametrize("solver", CASES, indirect=True)
def test_caffes_snapshot_is_taken_up(solver):
    solver.restore("snap_iter_5.solverstate")
    assert solver.iter == 5
    theirs = read_snapshot()
    solver.snapshot()
    check_snapshot(read_snapshot(), theirs)
