"""Defaults: what nets and solvers take that are given no Compute, no GPU and no seed."""

from __future__ import annotations

import nets
import numpy as np
import pytest
from mpi4py import MPI
from strict_arrays import StrictGpu

import scaffe
from scaffe import defaults, engines
from scaffe.compute import Compute
from scaffe.context import Context
from scaffe.defaults import Defaults, get_defaults, set_defaults
from scaffe.errors import LaunchError, NetError, ScaffeError
from scaffe.parallel.world import World
from scaffe.spec.netspec import NetSpec


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(defaults, "_present", Defaults())
    monkeypatch.setattr(defaults, "_gpus", {})


def layers(drop=0.5):
    n = NetSpec()
    n.x = scaffe.layers.Input(shape={"dim": [2, 3]})
    n.ip = scaffe.layers.InnerProduct(n.x, num_output=4, weight_filler={"type": "xavier"})
    n.y = scaffe.layers.Dropout(n.ip, dropout_ratio=drop)
    return n.to_proto()


def weights(net):
    return net.params["ip"][0].data.copy()


def test_a_net_that_is_given_no_compute_takes_the_default_one():
    set_defaults(compute=Compute(engine="reference"))
    assert scaffe.Net(layers(), scaffe.TEST).engine.name == "reference"
    given = Compute(engine="reference", deterministic=True)
    assert scaffe.Net(layers(), scaffe.TEST, compute=given).context.compute == given
    set_defaults(compute=Compute(deterministic=True))
    assert scaffe.Net(layers(), scaffe.TEST).context.compute == Compute(deterministic=True)


def test_parameters_and_dropout_follow_the_default_seed():
    found = {}
    for seed in (None, 0, 7, 8):
        set_defaults(seed=seed)
        net = scaffe.Net(layers(), scaffe.TRAIN)
        found[seed] = np.concatenate([weights(net).ravel(), net.forward(x=np.ones((2, 3)))["y"].ravel()])
    assert np.array_equal(found[None], found[0])
    assert not np.array_equal(found[7], found[8]) and not np.array_equal(found[7], found[0])
    given = scaffe.Net(layers(), context=Context(scaffe.TRAIN, seed=7))
    assert np.array_equal(weights(given).ravel(), found[7][:12])


def test_python_layers_run_by_the_default_and_not_by_a_given_compute(tmp_path, monkeypatch):
    (tmp_path / "same_by_default.py").write_text(nets.SAME)
    monkeypatch.syspath_prepend(tmp_path)
    n = NetSpec()
    n.x = scaffe.layers.Input(shape={"dim": [2, 3]})
    n.y = scaffe.layers.Python(n.x, module="same_by_default", layer="Same")
    set_defaults(compute=Compute(allow_python_layers=True))
    assert scaffe.Net(n.to_proto(), scaffe.TEST).forward(x=np.ones((2, 3)))["y"].sum() == 6
    with pytest.raises(NetError, match="--allow-python-layers"):
        scaffe.Net(n.to_proto(), scaffe.TEST, compute=Compute())


def solver(images, **fields):
    return scaffe.Solver(nets.solver_with(nets.softmax_regression(images), **fields))


def test_a_solver_takes_the_default_compute_and_seed_unless_its_file_has_one(images):
    set_defaults(compute=Compute(engine="reference"), seed=11)
    found = {}
    for seed in (-1, 11, 12):
        with_seed = solver(images, random_seed=seed)
        assert with_seed.net.engine.name == "reference" and with_seed.job.seed == (11 if seed < 0 else seed)
        found[seed] = with_seed.net.packed.data.copy()
        with_seed.close()
    assert np.array_equal(found[-1], found[11]) and not np.array_equal(found[11], found[12])


def test_set_defaults_returns_the_former_ones_and_refuses_wrong_ones():
    earlier = set_defaults(seed=3)
    assert (earlier, get_defaults()) == (Defaults(), Defaults(seed=3))
    for name, wrong in (("seed", -1), ("seed", 2**63), ("seed", True), ("gpu", "0"), ("compute", "cuda")):
        with pytest.raises(ScaffeError, match=name):
            set_defaults(**{name: wrong})
    with pytest.raises(ScaffeError, match="unknown default 'device'; known: compute gpu seed"):
        set_defaults(device="cpu")
    assert get_defaults() == Defaults(seed=3)


def test_nets_and_solvers_compute_on_the_default_gpu(monkeypatch, images):
    gpu = StrictGpu()
    monkeypatch.setattr(defaults, "choose", lambda device, ids: gpu)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = []
    for device in ("cuda", "cpu"):
        set_defaults(compute=Compute(device=device))
        net = scaffe.Net(layers(), scaffe.TEST)
        assert (net.engine.name == "cuda") == (device == "cuda")
        found.append(net.forward(x=x)["y"])
    np.testing.assert_allclose(*found, rtol=1e-5)
    world = World(MPI.COMM_SELF.Dup())
    for device in ("cuda", "cpu"):  # one after the other in the same world
        set_defaults(compute=Compute(device=device))
        param = nets.solver_with(nets.softmax_regression(images), random_seed=1)
        solver = scaffe.Solver(param, world=world)
        solver.step(2)
        found.append(solver.net.packed.host_data().copy())
        assert (solver.net.engine.name == "cuda") == (device == "cuda")
        solver.close()
    np.testing.assert_allclose(*found[2:], rtol=1e-4, atol=1e-6)


class TestGpu:
    """The GPU of the defaults, where `choose` is replaced: it gives a name for a number."""

    @pytest.fixture(autouse=True)
    def asked(self, monkeypatch):
        asked = []

        def choose(device, ids):
            asked.append((device, ids))
            if ids == "9":
                raise LaunchError("no GPU 9")
            return f"GPU {ids}"

        monkeypatch.setattr(defaults, "choose", choose)
        return asked

    def test_it_is_chosen_once_for_each_number_and_when_it_is_needed(self, asked):
        set_defaults(compute=Compute(device="cuda"))
        assert asked == []
        assert [defaults.default_gpu() for _ in range(2)] == ["GPU None"] * 2
        set_defaults(gpu=1)
        assert [defaults.default_gpu() for _ in range(2)] == ["GPU 1"] * 2
        assert asked == [("cuda", None), ("cuda", "1")]

    def test_without_device_cuda_there_is_none(self, asked):
        for device in ("auto", "cpu"):
            set_defaults(compute=Compute(device=device), gpu=1)
            assert defaults.default_gpu() is None
        assert asked == []

    def test_what_is_given_goes_before(self, asked):
        set_defaults(compute=Compute(device="cuda", deterministic=True))
        for given in ({"compute": Compute("reference")}, {"engine": engines.create(Compute("reference"))}):
            net = scaffe.Net(layers(), scaffe.TEST, **given)
            assert net.context.compute == Compute("reference") and net.engine.name == "reference"
        assert asked == []

    def test_the_error_of_a_gpu_that_is_not_there_comes_with_the_net(self):
        set_defaults(compute=Compute(device="cuda"), gpu=9)
        with pytest.raises(LaunchError, match="no GPU 9"):
            scaffe.Net(layers(), scaffe.TEST)
