"""Data layers against Caffe's: the tops of each pass, to the bit."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest

import scaffe

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("SCAFFE_CASES", ROOT.parent / "shared")).resolve()
CASES = sorted(path.parent.name for path in FOLDER.glob("parity/data_*/meta.json"))
NEEDS = {"data_leveldb": "plyvel", "data_hdf5": "h5py"}


@pytest.mark.parametrize("case", CASES or [None])
def test_the_tops_of_each_pass_are_caffes(case, monkeypatch):
    if case is None:
        pytest.skip(f"no Caffe reference files in {FOLDER}; SCAFFE_CASES names their folder")
    if case in NEEDS and not importlib.util.find_spec(NEEDS[case]):
        pytest.skip(f"{NEEDS[case]} is not installed")
    folder = FOLDER / "parity" / case
    monkeypatch.chdir(folder if case == "data_hdf5" else FOLDER / "caffe/artefacts")  # sources are relative to it
    net = scaffe.Net(str(folder / "net.prototxt"), scaffe.TEST)
    with np.load(folder / "arrays.npz") as arrays:
        for tops in json.loads((folder / "meta.json").read_text())["passes"]:
            net.forward()
            for name, values in tops.items():
                np.testing.assert_array_equal(net.blobs[name].data, arrays[values.removesuffix(".npy")], values)
    net.close()
