"""Nets and solvers over arrays as strict as CuPy's, a stand-in, have the numbers that they have over NumPy's."""

import inspect

import numpy as np
import pytest
from nets import lenet, solver_with, tower
from strict_arrays import KEYWORDS, MAKERS, UFUNCS, Array, StrictGpu, a_gpu, xp

import scaffe
from scaffe import engines, solvers
from scaffe.blob import on_host
from scaffe.compute import Compute
from scaffe.engines.cuda.launcher import FLAGS, THREADS, divisor, source
from scaffe.errors import EngineError
from scaffe.parallel.world import World, open_world
from scaffe.proto import SolverParameter

RULES = {
    "SGD": {"regularization_type": "L1"},
    "Nesterov": {"clip_gradients": 0.1},
    "AdaGrad": {"momentum": 0.0, "delta": 1e-8},
    "RMSProp": {"momentum": 0.0, "rms_decay": 0.98},
    "AdaDelta": {"momentum": 0.95, "delta": 1e-6, "iter_size": 2},
    "Adam": {"momentum": 0.9, "momentum2": 0.999, "delta": 1e-8},
    "LARS": {"lars_trust": 0.02},
}


@pytest.fixture
def world():
    return open_world()


def trained(world: World, gpu, net: str, iterations: int = 3, engine: str = "reference", **fields):
    """Return a solver that has run so many iterations; engine "auto" is the CUDA engine on a GPU."""
    world.take_gpu(gpu)
    try:
        solver = scaffe.Solver(solver_with(net, **fields), world=world, compute=Compute(engine=engine))
        solver.step(iterations)
    finally:
        world.take_gpu(None)
    return solver


def assert_alike(strict, plain):
    """Fail unless two solvers' nets hold the same numbers, bit for bit."""
    assert type(strict.net.packed.data) is Array
    np.testing.assert_array_equal(strict.net.packed.host_data(), plain.net.packed.data)
    for one, other in zip(strict.parts.rule.history, plain.parts.rule.history, strict=True):
        np.testing.assert_array_equal(one.get(), other)
    for name, blob in strict.net.blobs.items():
        np.testing.assert_array_equal(blob.data, plain.net.blobs[name].data)


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
def test_lenet_trains_as_on_the_host(world, images, pool):
    net = lenet(images, dropout=True, pool=pool)
    fields = {"test_iter": [2], "test_interval": 2}
    pair = [trained(world, gpu, net, **fields) for gpu in (StrictGpu(), None)]
    assert_alike(*pair)
    for solver in pair:
        solver.close()


@pytest.mark.parametrize("kind", sorted(RULES))
def test_every_rule_updates_as_on_the_host(world, images, kind):
    assert {*RULES} == {*solvers.kinds()}
    pair = [trained(world, gpu, tower(images), type=kind, **RULES[kind]) for gpu in (StrictGpu(), None)]
    assert_alike(*pair)
    for solver in pair:
        solver.close()


@pytest.mark.parametrize("kind", sorted(RULES))
def test_every_rules_kernel_gives_the_bits_of_the_reference(tmp_path, kind):
    (tmp_path / "net.prototxt").write_text(NET + OWN_RATES)
    how = {"base_lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "type": kind, **RULES[kind]}
    pair = [rule_over(tmp_path / "net.prototxt", gpu, SolverParameter(**how)) for gpu in (a_gpu(), None)]
    for iteration in range(3):
        for net, rule in pair:
            rng = np.random.default_rng(iteration)
            for blobs in net.params.values():
                for blob in blobs:
                    blob.diff[...] = rng.standard_normal(blob.shape)
            rule.update([2, 0, 3], 0.1, iteration)
            whole = rule.packed.slices[1]
            middle = (whole.start + whole.stop) // 2 if rule.elementwise else whole.stop
            for part in (slice(middle, whole.stop), slice(whole.start, middle)):
                rule.update([1] if part.stop > part.start else [], 0.1, iteration, part)
            rule.update([], 0.1, iteration)
    tolerance = 1e-6 if kind == "LARS" else 0  # its norms are added in another order
    for arrays in zip(*([net.packed.data, net.packed.diff, *rule.history] for net, rule in pair), strict=True):
        found, expected = map(on_host, arrays)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_an_update_differs_from_the_hosts_by_less_than_the_smallest_normal_number(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    small, found = np.finfo(np.float32).tiny, []
    param = SolverParameter(base_lr=0.5, lr_policy="fixed", momentum=0.5)
    for gpu in (a_gpu(), None):
        net, rule = rule_over(tmp_path / "net.prototxt", gpu, param)
        rng = np.random.default_rng(3)
        for iteration in range(3):
            for blobs in net.params.values():
                for blob in blobs:
                    blob.data[...] = rng.uniform(-4, 4, blob.shape) * small
                    blob.diff[...] = rng.uniform(-4, 4, blob.shape) * small
            rule.update(range(len(net.parameters)), 0.5, iteration)
        found.append(net.packed.host_data().astype(np.float64))
    kernels, plain = found
    assert np.abs(kernels - plain).max() <= 4 * small  # a few numbers on the way count as zeros
    assert np.abs(plain).max() > small


def rule_over(path, gpu, param: SolverParameter):
    """Return a net with random parameters, and the rule that updates them."""
    net = scaffe.Net(path, scaffe.TRAIN, engine=engines.create(Compute("reference" if gpu is None else "auto"), gpu))
    rng = np.random.default_rng(7)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = rng.standard_normal(blob.shape)
    rule = solvers.create(param, net.packed, net.context.engine)
    assert type(rule).__name__ == (f"Cuda{rule.kind}" if gpu else rule.kind)
    return net, rule


@pytest.mark.parametrize("smooth", [True, False])
def test_lenet_trains_by_the_kernels_as_on_the_host(world, images, smooth):
    net = lenet(images, batch=8, dropout=True, smooth=smooth)
    pair = [trained(world, gpu, net, 2, engine) for gpu, engine in ((a_gpu(), "auto"), (None, "reference"))]
    kernels, plain = (solver.net for solver in pair)
    assert {type(layer).__name__ for layer in kernels.layers} >= {"CudaConvolution", "CudaPooling", "CudaDropout"}
    for name, blob in plain.blobs.items():
        scale = max(1e-3, np.abs(blob.data).max())
        np.testing.assert_allclose(kernels.blobs[name].data, blob.data, rtol=0, atol=2e-5 * scale, err_msg=name)
    for solver in pair:
        solver.close()


@pytest.mark.parametrize("shape", [(3, 5), (2, 8), (4, 2, 3, 3), (1, 17)])
def test_dropout_leaves_out_the_same_values_as_on_the_host(tmp_path, shape):
    dims = " ".join(f"dim: {size}" for size in shape)
    (tmp_path / "net.prototxt").write_text(DROPOUT.replace("DIMS", dims))
    found = []
    for engine in (engines.create(gpu=a_gpu()), "reference"):
        net = scaffe.Net(tmp_path / "net.prototxt", scaffe.TRAIN, engine=engine)
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        passes = [net.forward(x=x)["y"].copy() for _ in range(3)]
        found.append([*passes, net.backward(y=x)["x"].copy()])
    np.testing.assert_array_equal(*found)
    assert not (found[0][0] == found[0][1]).all()


def test_a_snapshot_goes_on_as_on_the_host(world, images, tmp_path):
    how = {"type": "Adam", "snapshot_prefix": str(tmp_path / "snap"), **RULES["Adam"]}
    first = trained(world, StrictGpu(), tower(images), 2, **how)
    state = first.snapshot()
    first.step(2)
    plain, strict = (trained(world, gpu, tower(images), 0, **how) for gpu in (None, StrictGpu()))
    for solver in (plain, strict):
        solver.restore(state)
        solver.step(2)
    assert_alike(strict, plain)
    assert_alike(first, plain)
    for solver in (first, plain, strict):
        solver.close()


NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 3 } }
layer { name: "c" type: "InnerProduct" bottom: "a" top: "c" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 3 } }
"""


OWN_RATES = """
layer { name: "d" type: "InnerProduct" bottom: "c" top: "d" param { lr_mult: 3 decay_mult: 0 } param { lr_mult: 0.5 }
  inner_product_param { num_output: 300 } }
"""
DROPOUT = """
force_backward: true
layer { name: "x" type: "Input" top: "x" input_param { shape { DIMS } } }
layer { name: "drop" type: "Dropout" bottom: "x" top: "y" dropout_param { dropout_ratio: 0.3 } }
"""


DIVIDE = """
KERNEL divide(Index count, const int* numbers, word by, int* quotients) {
  EACH(i, count) quotients[i] = Divisor(by)(numbers[i]);
}
"""


@pytest.mark.parametrize("by", [1, 2, 3, 7, 55, 641, 65535, 65537, 2**30 - 1, 2**30, 2**30 + 1, 2**31 - 1])
def test_a_kernel_divides_exactly(by):
    numbers = np.random.default_rng(0).integers(0, 2**31, 1000, np.int32)
    edges = [0, 1, by - 1, by, 2**31 - 1, (2**31 - 1) // by * by, max(0, (2**31 - 1) // by * by - 1)]
    numbers[: len(edges)] = edges
    a = a_gpu().xp
    found = a.zeros(1000, dtype=np.int32)
    common = source("lrn").partition("// Local response")[0]
    kernel = a.RawModule(code=common + DIVIDE, options=FLAGS).get_function("divide")
    kernel((4,), (THREADS,), (np.int64(1000), a.asarray(numbers), divisor(by), found))
    np.testing.assert_array_equal(found.get(), numbers // by)


@pytest.fixture
def net(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    return scaffe.Net(tmp_path / "net.prototxt", scaffe.TEST, engine=engines.create(gpu=StrictGpu()))


def test_what_is_written_on_the_host_is_what_all_that_share_it_compute_with(net):
    net.params["a"][0].data[...] = 2 * np.eye(3)
    net.forward(x=np.ones((2, 3)))
    assert (net.blobs["c"].data == 4).all()
    net.params["a"][0].data[...] = np.eye(3)
    assert (net.packed.host_data()[:9] == np.eye(3).reshape(-1)).all()
    net.forward()
    assert (net.blobs["c"].data == 1).all()


def test_a_net_that_borrows_parameters_sees_what_is_written_into_them(net, tmp_path):
    other = scaffe.Net(tmp_path / "net.prototxt", scaffe.TEST, engine=engines.create(gpu=StrictGpu()))
    other.share_with(net)
    net.params["a"][0].data[...] = np.eye(3)
    assert (other.forward(x=np.ones((2, 3)))["c"] == 1).all()


def test_gradients_are_cleared_whoever_has_looked_at_them(net):
    net.forward(x=np.ones((2, 3)))
    net.params["a"][0].diff[...] = 5
    net.clear_param_diffs()
    assert not net.packed.diff.get().any()


def test_an_engine_of_the_processor_is_refused_on_a_gpu(tmp_path, net):
    with pytest.raises(EngineError, match="engine onednn computes on the CPU, and a GPU was asked for"):
        engines.create(Compute("onednn"), StrictGpu())


@pytest.mark.parametrize(
    "mix",
    [
        lambda a: a + np.ones(3),
        lambda a: np.add(np.ones(3), a),
        lambda a: a.__setitem__(slice(None), np.ones(3)),
        lambda a: a[np.array([0])],
        lambda a: xp.maximum(a, np.ones(3)),
        lambda a: xp.where(a > 0, a, np.ones(3)),
        lambda a: np.asarray(a),
        lambda a: xp.einsum("i,i->i", a, a, out=a),
    ],
)
def test_the_stand_in_refuses_what_cupy_refuses(mix):
    with pytest.raises(TypeError):
        mix(xp.zeros(3))


def test_the_stand_in_knows_no_argument_that_cupy_does_not():
    cupy = pytest.importorskip("cupy")
    assert [name for name in UFUNCS if not isinstance(getattr(cupy, name), (cupy.ufunc, type(cupy.matmul)))] == []
    for name, keywords in (KEYWORDS | MAKERS).items():
        assert keywords <= inspect.signature(getattr(cupy, name)).parameters.keys() or name == "einsum", name
