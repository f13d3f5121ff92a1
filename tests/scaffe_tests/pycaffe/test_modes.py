"""set_mode_cpu, set_mode_gpu, set_device and set_random_seed: what nets and solvers made afterwards take."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import scaffe.pycaffe as caffe
from scaffe import defaults
from scaffe.compute import Compute
from scaffe.defaults import Defaults, get_defaults
from scaffe.errors import LaunchError, ScaffeError
from scaffe.pycaffe import modes


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(defaults, "_present", Defaults(Compute(deterministic=True)))
    monkeypatch.setattr(defaults, "_gpus", {})


def fill(seed):
    """Return the parameters of a net that is made after set_random_seed."""
    caffe.set_random_seed(seed)
    n = caffe.NetSpec()
    n.x = caffe.layers.Input(shape={"dim": [2, 3]})
    n.y = caffe.layers.InnerProduct(n.x, num_output=4, weight_filler={"type": "gaussian"})
    return caffe.Net(n.to_proto(), caffe.TEST).params["y"][0].data.copy()


def test_with_a_gpu_the_mode_and_the_device_choose_it(monkeypatch):
    asked = []
    monkeypatch.setattr(modes.gpu, "find", lambda: (None, 4))
    monkeypatch.setattr(defaults, "choose", lambda *given: asked.append(given) or "a GPU")
    caffe.set_device(np.int64(2))
    caffe.set_mode_gpu()
    assert get_defaults().compute == Compute(device="cuda", deterministic=True) and defaults.default_gpu() == "a GPU"
    caffe.set_mode_cpu()
    assert get_defaults().compute == Compute(device="cpu", deterministic=True) and defaults.default_gpu() is None
    assert asked == [("cuda", "2")]


@pytest.mark.parametrize(("local_rank", "level"), [(0, logging.WARNING), (1, logging.INFO)])
def test_without_a_gpu_it_warns_once_a_node_and_the_cpu_computes(monkeypatch, local_rank, level):
    def find():
        raise LaunchError("no NVIDIA driver is installed")

    logged = []
    monkeypatch.setattr(modes.gpu, "find", find)
    monkeypatch.setattr(modes.logs, "begin", lambda: None)
    monkeypatch.setattr(modes.gpu, "local_rank", lambda: local_rank)
    monkeypatch.setattr(modes.log, "log", lambda level, text, *args: logged.append((level, text % args)))
    caffe.set_mode_gpu()
    [(at, text)] = logged
    assert at == level and text.endswith("compute on the CPU, since no GPU can be used: no NVIDIA driver is installed")
    assert get_defaults().compute == Compute(device="cpu", deterministic=True)


def test_parameters_follow_the_seed():
    assert np.array_equal(fill(1), fill(1)) and not np.array_equal(fill(1), fill(2))


@pytest.mark.parametrize("function", [caffe.set_device, caffe.set_random_seed])
def test_wrong_numbers_are_refused(function):
    with pytest.raises(ScaffeError, match="must be None or a whole number from 0 to .*, got -1"):
        function(-1)
    with pytest.raises(TypeError):
        function("0")
