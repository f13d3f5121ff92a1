"""Convolutions that write into their part of a Concat's top have the numbers of copies, without these."""

import launch_counts
import numpy as np
import pytest
from both_engines import build
from cudnn_gpu import gpu_with
from fake_cudnn import Engine, FakeFrontend
from host_kernels import Kernel

import scaffe
from scaffe.engines.cuda.forms import data, diff
from scaffe.engines.cuda.graphs import WARM_UP
from scaffe.engines.cuda.typed_blobs import TypedBlobs


def conv(name, bottom, out, more=""):
    return f"""layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"
      convolution_param {{ num_output: {out} kernel_size: 1 {more} }} }}
      """


def relu(name):
    return f'layer {{ name: "relu_{name}" type: "ReLU" bottom: "{name}" top: "{name}" }}\n'


def concat(*names):
    return f'layer {{ name: "all" type: "Concat" {" ".join(f"""bottom: "{name}" """ for name in names)} top: "all" }}\n'


END = conv("end", "all", 3)
POOL = """layer { name: "pool" type: "Pooling" bottom: "x" top: "pool"
  pooling_param { kernel_size: 3 pad: 1 stride: 1 } }\n"""
FIRST = conv("x", "x0", 8)
INCEPTION = (
    FIRST + conv("a", "x", 8) + relu("a") + conv("b", "x", 24, "group: 2") + relu("b") + POOL + conv("c", "pool", 16)
    + relu("c") + concat("a", "b", "c") + END
)  # fmt: skip
NETS = {  # with the blobs that are slices in bfloat16
    "inception": (INCEPTION, "abc"),
    "no ReLU": (FIRST + conv("a", "x", 8) + conv("b", "x", 8, "bias_term: false") + concat("a", "b") + END, "ab"),
    "a pool is copied": (FIRST + conv("a", "x", 8) + relu("a") + POOL + concat("a", "pool") + END, "a"),
    "an odd number of channels": (FIRST + conv("a", "x", 8) + conv("b", "x", 12) + concat("a", "b") + END, ""),
    "two readers": (FIRST + conv("a", "x", 8) + conv("b", "a", 8) + concat("a", "b") + END, "b"),
    "overwritten": (FIRST + conv("a", "x", 8) + conv("b", "x", 8) + concat("a", "b") + relu("all") + END, ""),
    "ReLUs later": (
        FIRST + conv("a", "x", 8) + conv("b", "x", 8) + relu("a") + relu("b") + concat("a", "b") + END, "",
    ),
}  # fmt: skip
EACH = [(name, False, scaffe.TRAIN) for name in NETS]
EACH += [("inception", True, scaffe.TRAIN), ("inception", False, scaffe.TEST), ("a pool is copied", True, scaffe.TEST)]
SHAPE = 3, 4, 5, 4


@pytest.fixture(autouse=True)
def _no_plans_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def net_of(name, numbers="", keep_diffs=False, frontend=None, **how):
    """Return a net on a stand-in for a GPU, the reference's where no numbers are given."""
    gpu = gpu_with(frontend) if numbers else None
    how |= {"numbers": numbers} if numbers else {}
    net = build(NETS[name][0], SHAPE, engine="auto" if gpu else "reference", gpu=gpu, **how)
    net.keep_diffs = keep_diffs
    return net


def computed(net, passes=2, by_groups=False):
    """Return all values, the parameters' gradients and that of x0 after some passes."""
    rng, engine = np.random.default_rng(0), net.engine
    for _ in range(passes):
        net.clear_param_diffs()
        net.blobs["x0"].data[...] = rng.standard_normal(SHAPE)
        engine.begin_pass()
        groups = engine.groups(net) if by_groups else [(i,) for i in range(len(net.layers))]
        for group in groups:
            engine.forward(net, group)
        end = net.blobs["end"]
        end.diff_array[...] = end.xp.asarray(rng.standard_normal(end.shape, np.float32))
        for group in reversed(groups if net.trains else ()):
            engine.backward(net, group)
    found = {name: blob.data.copy() for name, blob in net.blobs.items()}
    return found | {f"{name} {i}": blob.diff for name, blobs in net.params.items() for i, blob in enumerate(blobs)}


def assert_alike(found, expected, tolerance):
    for name, values in expected.items():
        apart = np.linalg.norm(found[name] - values) / max(1e-3, np.linalg.norm(values))
        assert apart < tolerance, name


@pytest.mark.parametrize(("name", "keep_diffs", "phase"), EACH)
def test_the_numbers_are_the_references(name, keep_diffs, phase):
    net = net_of(name, "tf32", keep_diffs, phase=phase)  # which the stand-in for cuDNN does not round
    assert_alike(computed(net), computed(net_of(name, phase=phase)), 2e-5)


@pytest.mark.parametrize(("name", "keep_diffs", "phase"), EACH)
def test_in_bfloat16_the_bits_are_those_of_copies(monkeypatch, name, keep_diffs, phase):
    net = net_of(name, "bf16", keep_diffs, phase=phase)
    found = computed(net)
    slices = [blob for blob in net.blobs if data(net.blobs[blob]).pitch]
    assert "".join(slices) == NETS[name][1]
    of_diffs = [blob for blob in net.blobs if diff(net.blobs[blob]).pitch]
    assert of_diffs == (slices if phase == scaffe.TRAIN and not keep_diffs else [])
    monkeypatch.setattr(TypedBlobs, "slices", lambda self, typed: {})
    for blob, values in computed(net_of(name, "bf16", keep_diffs, phase=phase)).items():
        np.testing.assert_array_equal(found[blob], values, err_msg=blob)


@pytest.mark.parametrize("name", ["inception", "a pool is copied"])
def test_what_is_repeated_has_the_bits_of_what_is_computed(name):
    nets = [net_of(name, "bf16", graphs=graphs) for graphs in ("on", "off")]
    found, right = (computed(net, 2 * WARM_UP + 3, by_groups=True) for net in nets)
    assert nets[0].engine.graphs._recordings
    for blob, values in right.items():
        np.testing.assert_array_equal(found[blob], values, err_msg=blob)


def test_what_a_user_writes_into_a_slice_is_read_and_the_neighbours_stay():
    net = net_of("inception", "bf16")
    computed(net)
    whole, part = net.blobs["all"].data.copy(), net.blobs["b"]
    part.data[...] = 2
    net.forward_layer([layer.name for layer in net.layers].index("all"))
    whole[:, 8:32] = 2
    np.testing.assert_array_equal(net.blobs["all"].data, whole)


def test_a_frozen_bias_leaves_the_relu_to_itself():
    frozen = INCEPTION.replace('top: "a"\n', 'top: "a" param { } param { lr_mult: 0 }\n')
    pair = [
        build(frozen, SHAPE, engine=engine, gpu=gpu, **how)
        for engine, gpu, how in (("auto", gpu_with(), {"numbers": "tf32"}), ("reference", None, {}))
    ]
    for net in pair:
        net.keep_diffs = False
    assert_alike(*map(computed, pair), 2e-5)


def test_nothing_is_copied(monkeypatch):
    names, call = [], Kernel.__call__
    monkeypatch.setattr(Kernel, "__call__", lambda self, *given: (names.append(self.name), call(self, *given)))
    net = net_of("inception", "bf16")
    computed(net)
    names.clear()
    computed(net)
    assert not [name for name in names if name.startswith(("gather", "scatter", "relu"))]


def test_a_plan_that_fits_a_whole_array_alone_is_not_taken_for_a_slice():
    """Plans are timed over slices as the layers have them, so their names tell one from the other."""
    net = net_of("inception", "bf16", frontend=FakeFrontend(Engine("eng0")), plan="timed")
    net.context.choices.time([net])
    taken = [work for work in net.context.choices.taken if "48 out" in work]
    assert len(taken) == 3 * 3  # layers, passes


def test_googlenet_copies_nothing_into_its_concatenations():
    launches = launch_counts.counted("googlenet", "bf16")
    assert not any(name.startswith(("gather", "scatter")) for name in launches)
