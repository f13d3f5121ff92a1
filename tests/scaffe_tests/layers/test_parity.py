"""Layers and small nets against what Caffe computed: tops, bottoms' gradients, parameters' gradients."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from both_engines import needs_onednn
from strict_arrays import a_gpu

import scaffe
from scaffe import engines
from scaffe.compute import Compute
from scaffe.layers.layer import known_types
from scaffe.proto import NetParameter

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("SCAFFE_CASES", ROOT.parent / "shared")).resolve() / "parity"
LOOSE = {"LRN", "MVN", "BatchNorm", "LSTM", "RNN", "LSTMUnit"}  # many roundings one after the other


def runnable_cases(stored=False):
    """Return the folders of the cases whose layer types there are, if need be those with weights that Caffe wrote."""
    for path in sorted(FOLDER.glob("*/params.caffemodel" if stored else "*/meta.json")):
        if not path.parent.name.startswith(("data_", "solver_")):
            kinds = {kind for _, kind in json.loads((path.parent / "meta.json").read_text())["layers"]}
            if kinds <= set(known_types()):
                yield path.parent


@pytest.fixture
def case(request, monkeypatch):
    if request.param is None:
        pytest.skip(f"no Caffe reference files in {FOLDER.parent}; SCAFFE_CASES names their folder")
    monkeypatch.chdir(request.param)  # sources in the net are relative to it
    meta = json.loads(Path("meta.json").read_text())
    with np.load("arrays.npz") as arrays:
        meta["arrays"] = {f"{name}.npy": array for name, array in arrays.items()}
    return meta


@pytest.mark.parametrize("case", [*runnable_cases()] or [None], ids=lambda path: path and path.name, indirect=True)
@pytest.mark.parametrize("engine", ["reference", "strict", "cuda", pytest.param("onednn", marks=needs_onednn)])
def test_values_and_gradients_are_caffes(case, engine):
    arrays, tolerance = case["arrays"], 1e-4 if LOOSE & {kind for _, kind in case["layers"]} else 1e-5
    compute = Compute({"strict": "reference", "cuda": "auto"}.get(engine, engine))
    made = engines.create(compute, a_gpu() if engine in ("strict", "cuda") else None)
    net = scaffe.Net("net.prototxt", getattr(scaffe, case["phase"]), engine=made)

    def check(kind, blob, values):
        expected = arrays[values].astype(np.float64).reshape(blob.shape)
        error = np.abs(getattr(blob, kind) - expected).max()
        assert error <= tolerance * max(1e-3, np.abs(expected).max()), values

    fill(net, case, arrays)
    net.forward()
    for top in case["tops"]:
        check("data", net.blobs[top["blob"]], top["data"])
    if not case["backward"]:
        return
    for top in case["tops"]:
        if top.get("diff"):
            blob = net.blobs[top["blob"]]
            blob.diff[...] = arrays[top["diff"]].reshape(blob.shape)
    net.backward()
    for bottom in case["bottom_diffs"]:
        if bottom.get("written", True) and bottom.get("diff"):
            check("diff", net.blobs[bottom["blob"]], bottom["diff"])
    for param in case["param_diffs"]:
        if param.get("diff"):
            check("diff", net.params[param["layer"]][param["index"]], param["diff"])


@pytest.mark.parametrize("case", [*runnable_cases(stored=True)] or [None], ids=lambda p: p and p.name, indirect=True)
def test_weights_that_caffe_wrote_are_read(case, tmp_path):
    net = scaffe.Net("net.prototxt", "params.caffemodel", getattr(scaffe, case["phase"]), compute=Compute("reference"))
    for param in case["params"]:
        if "data" in param:
            blob = net.params[param["layer"]][param["index"]]
            np.testing.assert_array_equal(blob.data, case["arrays"][param["data"]].reshape(blob.shape))
    net.save(tmp_path / "ours.caffemodel")
    for ours, caffes in zip(stored_blobs(tmp_path / "ours.caffemodel"), stored_blobs("params.caffemodel"), strict=True):
        assert shape_that_caffe_reads(ours) == shape_that_caffe_reads(caffes)
        assert ours.data == caffes.data


@pytest.mark.parametrize("engine", ["reference", pytest.param("onednn", marks=needs_onednn)])
def test_the_program_that_caffe_passes_finds_no_case_that_differs(engine, cases):
    """It was run on Caffe too, so that it has pycaffe's names alone, and `engine=`."""
    program = cases / "tools/parity.py"
    if not program.exists():
        pytest.skip(f"no {program}")
    command = sys.executable, str(program), str(FOLDER), engine
    found = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"parity {engine}: " in found.stdout


def stored_blobs(path):
    return [blob for layer in NetParameter.FromString(Path(path).read_bytes()).layer for blob in layer.blobs]


def shape_that_caffe_reads(blob):
    """Blob::FromProto of Caffe's blob.cpp."""
    if blob.HasField("num") or blob.HasField("channels") or blob.HasField("height") or blob.HasField("width"):
        return [blob.num, blob.channels, blob.height, blob.width]
    return list(blob.shape.dim)


def fill(net, case, arrays):
    """Give the net the case's inputs and parameters, and no gradients yet."""
    for param in case["params"]:
        if "data" in param:
            blob = net.params[param["layer"]][param["index"]]
            blob.data[...] = arrays[param["data"]].reshape(blob.shape)
    for blob in case["inputs"]:
        net.blobs[blob["blob"]].data[...] = arrays[blob["data"]].reshape(net.blobs[blob["blob"]].shape)
    net.clear_param_diffs()
