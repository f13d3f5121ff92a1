"""Convolutions by cuDNN, a stand-in, have the reference's numbers; of its plans the right one is taken."""

import fake_cudnn
import numpy as np
import pytest
from both_engines import assert_alike, run
from cudnn_gpu import gpu_with
from fake_cudnn import Engine, FakeFrontend
from google.protobuf import text_format
from strict_arrays import Array

import scaffe
from scaffe import engines
from scaffe.compute import Compute
from scaffe.context import Context
from scaffe.devices.choices import Choices
from scaffe.engines.cuda.column_passes import ColumnPasses
from scaffe.errors import DeviceError
from scaffe.proto import NetParameter

EXACT = Engine("eng0")
QUICK = Engine("eng1_k2=3", seconds=0.5)
LARGE = Engine("eng2", nbytes=1 << 20, seconds=0.1)
HASTY = Engine("eng3", notes=("NONDETERMINISTIC",), seconds=0.01)
LOW = Engine("eng4", notes=("TENSOR_CORE",), seconds=0.02)
LOWER = Engine("eng5", notes=("TENSOR_CORE", "DOWN_CONVERT_INPUTS"), seconds=0.001)
BROKEN = Engine("eng6", seconds=0.0001, builds=False)
ALL = BROKEN, LOWER, LOW, EXACT, QUICK, LARGE, HASTY


@pytest.fixture(autouse=True)
def _no_plans_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


CASES = {
    "plain": ("num_output: 4 kernel_size: 3 pad: 1", (3, 5, 6, 7)),
    "groups, strides, dilation": ("num_output: 6 kernel_size: 3 pad: 2 stride: 2 dilation: 2 group: 2", (2, 4, 9, 8)),
    "no bias": ("num_output: 4 kernel_h: 2 kernel_w: 3 bias_term: false", (2, 3, 5, 6)),
    "many channels": ("num_output: 33 kernel_size: 1", (1, 34, 3, 4)),
    "one axis": ("num_output: 3 kernel_size: 3 stride: 2", (2, 3, 9)),
    "three axes": ("num_output: 3 kernel_size: 2", (2, 3, 4, 3, 5)),
    "channels further back": ("num_output: 3 kernel_size: 2 axis: 2", (2, 2, 3, 4, 5)),
}


def a_net(kind, fields, shape, engine="auto", frontend=None, gpu=None, **how):
    """Return a net of one layer y over x, twice in a row if `fields` is a list, filled with random numbers."""
    dims = " ".join(f"dim: {size}" for size in shape)
    text = f"""force_backward: true
    layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}
    layer {{ name: "it" type: "{kind}" bottom: "x" top: "y" convolution_param {{ {fields} }} }}"""
    gpu = gpu if frontend is None else gpu_with(frontend)
    choices = Choices(how.pop("plan", "auto"))
    context = Context(how.pop("phase", scaffe.TRAIN), choices=choices, compute=Compute(engine, **how))
    net = scaffe.Net(
        text_format.Parse(text, NetParameter()), context=context, engine=engines.create(context.compute, gpu)
    )
    choices.time([net])
    rng = np.random.default_rng(0)
    for blob in (net.blobs["x"], *(blob for blobs in net.params.values() for blob in blobs)):
        blob.data[...] = rng.standard_normal(blob.shape)
    return net


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("last", [0.1, 2.0], ids=["channels last", "channels first"])
@pytest.mark.parametrize("case", CASES)
def test_every_pass_has_the_references_numbers(kind, last, case, caplog):
    fields, shape = CASES[case]
    frontend = FakeFrontend(EXACT, QUICK, last=last)
    net = a_net(kind, fields, shape, frontend=frontend)
    frontend.ran.clear()
    assert_alike(run(net, 2), run(a_net(kind, fields, shape, engine="reference"), 2))
    assert frontend.ran == [f"{'last' if last < 1 else 'first'} {QUICK.name}"] * 6
    assert "left out" not in caplog.text  # the columns that plans are compared with have these numbers too


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
def test_bfloat16_numbers_are_multiplied_and_float32_ones_kept(kind):
    fields, shape = CASES["groups, strides, dilation"]
    frontend = FakeFrontend(*ALL)
    net = a_net(kind, fields, shape, frontend=frontend, numbers="bf16")
    frontend.ran.clear()
    found, expected = run(net, 2), run(a_net(kind, fields, shape, engine="reference"), 2)
    assert_alike(found, expected, 2e-2)
    assert any(not np.allclose(found[name], expected[name], atol=1e-5) for name in expected)
    assert set(frontend.ran) == {f"last {HASTY.name}"}


@pytest.mark.parametrize(
    ("how", "taken"),
    [
        ({}, HASTY),
        ({"numbers": "tf32"}, HASTY),
        ({"deterministic": True}, EXACT),
        ({"deterministic": True, "numbers": "tf32"}, LOW),
        ({"deterministic": True, "plan": "timed"}, LARGE),
        ({"deterministic": True, "plan": "timed", "numbers": "tf32"}, LOW),
        ({"deterministic": True, "plan": "timed", "workspace_bytes": 1000}, QUICK),
        ({"plan": "fixed"}, EXACT),
    ],
    ids=str,
)
def test_the_fastest_plan_is_taken_that_has_room_and_computes_as_was_asked(how, taken):
    frontend = FakeFrontend(*ALL)
    net = a_net("Convolution", *CASES["plain"], frontend=frontend, **how)
    frontend.ran.clear()
    run(net)
    assert set(frontend.ran) == {f"{'last' if 'numbers' in how else 'first'} {taken.name}"}


def test_nets_on_one_gpu_take_plans_that_fit_their_own_workspace():
    frontend = FakeFrontend(LARGE, EXACT)
    gpu = gpu_with(frontend)
    for limit, taken in ((2.0**30, LARGE), (1000, EXACT)):
        net = a_net("Convolution", *CASES["plain"], gpu=gpu, plan="fixed", workspace_bytes=limit)
        frontend.ran.clear()
        run(net)
        assert set(frontend.ran) == {f"first {taken.name}"}


def test_what_is_known_is_not_timed_again_and_goes_with_the_choices():
    frontend = FakeFrontend(EXACT, QUICK)
    net = a_net("Convolution", *CASES["plain"], frontend=frontend)
    taken = net.context.choices.taken
    works = [f"cuDNN {one} 5x6x7 by 4x5x3x3, stride 1x1, pad 1x1, dilation 1x1, float32" for one in
             ("correlate", "spread", "weigh")]  # fmt: skip
    assert taken == dict.fromkeys([f"{works[0]} and bias", *works[1:]], f"channels first, {QUICK.name}")
    frontend.ran.clear()
    net.context.choices.time([net])
    assert frontend.ran == []
    slow = dict.fromkeys(taken, f"channels last, {EXACT.name}")
    other = a_net("Convolution", *CASES["plain"], frontend=frontend, plan="fixed")
    other.context.choices.taken = slow
    other.replan()
    run(other)
    assert set(frontend.ran) == {f"last {EXACT.name}"}


@pytest.mark.parametrize(("numbers", "factor", "right"), [
    ("float32", 1.0005, True), ("float32", 1.01, False), ("tf32", 1.005, True), ("tf32", 1.05, False),
    ("bf16", 1.02, True), ("bf16", 1.3, False), ("float32", float("nan"), False),
])  # fmt: skip
@pytest.mark.parametrize("is_first", [False, True], ids=["second", "first"])
def test_a_plan_whose_result_is_wrong_is_left_out(numbers, factor, right, is_first, caplog):
    other = Engine("eng8", seconds=0.1, factor=factor)
    engines = (other, EXACT) if is_first else (EXACT, other)
    net = a_net("Convolution", *CASES["plain"], frontend=FakeFrontend(*engines), numbers=numbers)
    layout = "channels first" if numbers == "float32" else "channels last"
    found = {tuple(name.replace(" with bias", "").split(", ")) for name in net.context.choices.taken.values()}
    assert found == {(layout, (other if right else EXACT).name)}
    assert ("left out channels" in caplog.text) == (not right)


@pytest.mark.parametrize("numbers", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
def test_where_no_plan_is_right_columns_compute(kind, numbers):
    fields, shape = CASES["groups, strides, dilation"]
    frontend = FakeFrontend(*(Engine(f"eng{i}", factor=factor) for i, factor in enumerate((1.5, float("nan"), 0.0))))
    net = a_net(kind, fields, shape, frontend=frontend, numbers=numbers)
    assert set(net.context.choices.taken.values()) == {"columns"}
    frontend.ran.clear()
    assert_alike(run(net, 2), run(a_net(kind, fields, shape, engine="reference"), 2), 2e-2)
    assert frontend.ran == []


def test_the_comparison_has_the_columns_of_one_image_at_a_time(monkeypatch):
    made, init = [], ColumnPasses.__init__

    def noting(passes, *given):
        init(passes, *given)
        made.append(passes.columns.size)

    monkeypatch.setattr(ColumnPasses, "__init__", noting)
    a_net("Convolution", CASES["plain"][0], (7, 5, 6, 7), frontend=FakeFrontend(EXACT))
    assert made == [5 * 9 * 6 * 7] * 3


def test_a_plan_that_writes_nothing_is_left_out(monkeypatch):
    idle = Engine("eng9", seconds=0.1)
    frontend = FakeFrontend(EXACT, idle)
    run_plan = fake_cudnn.Graph.execute_plan_at_index

    def execute(graph, pointers, workspace, index, handle):
        if graph.fake.engines[index] is not idle:
            run_plan(graph, pointers, workspace, index, handle)

    monkeypatch.setattr(fake_cudnn.Graph, "execute_plan_at_index", execute)
    net = a_net("Convolution", *CASES["plain"], frontend=frontend)
    assert set(net.context.choices.taken.values()) == {f"channels first, {EXACT.name}"}


def test_of_each_variant_the_first_plans_are_timed_in_the_librarys_order():
    engines = [BROKEN, *(Engine(f"eng{i}", seconds=40 - i) for i in range(10, 30))]
    frontend = FakeFrontend(*engines, last=0.9)
    net = a_net("Convolution", "num_output: 4 kernel_size: 3 bias_term: false", (3, 5, 6, 7), frontend=frontend)
    assert set(frontend.ran) == {f"{side} eng{i}" for side in ("first", "last") for i in range(10, 18)}
    assert set(net.context.choices.taken.values()) == {"channels last, eng17"}


def test_the_next_run_finds_plans_for_its_batch_and_workspace():
    frontend = FakeFrontend(EXACT, QUICK)
    fields, shape = CASES["plain"]
    first = a_net("Convolution", fields, shape, frontend=frontend)
    for batch, limit, timed in ((3, 2.0**30, False), (4, 2.0**30, True), (3, 2.0**20, True)):
        frontend.ran.clear()
        again = a_net("Convolution", fields, (batch, *shape[1:]), frontend=frontend, workspace_bytes=limit)
        assert bool(frontend.ran) == timed
        assert again.context.choices.taken == first.context.choices.taken


def test_a_plan_that_is_gone_is_replaced_by_the_first_of_its_layout():
    frontend = FakeFrontend(LOW, EXACT, QUICK)
    net = a_net("Convolution", *CASES["plain"], frontend=frontend, plan="fixed")
    works = net.layers[-1].works(net.bottoms[-1], net.tops[-1], True)
    net.context.choices.taken = dict.fromkeys(works, "channels last, eng99")
    run(net)
    assert set(frontend.ran) == {f"last {EXACT.name}"}


def test_arrays_that_lie_where_plans_take_none_are_copied():
    frontend = FakeFrontend(EXACT, last=9.0)
    net = a_net("Convolution", *CASES["plain"], frontend=frontend)
    expected = run(net)
    for blob in net.blobs.values():
        memory = np.zeros(blob.count + 1, np.float32)
        blob.array = Array(memory[1:].reshape(blob.shape))  # 4 bytes further than NumPy begins
        blob.diff_array = Array(memory.copy()[1:].reshape(blob.shape))
    rng = np.random.default_rng(0)
    net.blobs["x"].data[...] = rng.standard_normal(net.blobs["x"].shape)
    assert_alike(run(net), expected)


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_a_plan_that_fails_or_has_no_memory_when_timed_is_not_taken(error):
    failing = Engine("eng7", seconds=0.0001, fails=error)
    net = a_net("Convolution", *CASES["plain"], frontend=FakeFrontend(EXACT, failing))
    assert set(net.context.choices.taken.values()) == {f"channels first, {EXACT.name}"}


def test_a_plan_that_fails_later_is_told_with_its_layer():
    net = a_net("Convolution", *CASES["plain"], frontend=FakeFrontend(Engine("eng7", fails=RuntimeError)), plan="fixed")
    with pytest.raises(
        DeviceError, match=r"layer 'it' \(Convolution\).*cuDNN failed: execution plan eng7: .*--plan fixed"
    ):
        net.forward()


def test_timing_leaves_all_values_alone_and_keeps_no_memory():
    net = a_net("Convolution", *CASES["plain"], frontend=FakeFrontend(LARGE))
    assert not net.packed.diff.get().any() and not net.blobs["y"].data.any()
    assert net.context.engine._scratch_memory == {}


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
def test_a_pass_that_the_library_has_not_goes_by_columns(kind):
    fields, shape = CASES["plain"]
    frontend = FakeFrontend(EXACT, refuses=lambda graph: graph.result.uid == 3)
    found = run(a_net(kind, fields, shape, frontend=frontend))
    assert_alike(found, run(a_net(kind, fields, shape, engine="reference")))
    assert frontend.ran and not any("last" in one for one in frontend.ran[-1:])


def test_a_test_net_times_the_forward_pass_alone():
    frontend = FakeFrontend(EXACT, QUICK)
    net = a_net("Convolution", *CASES["plain"], frontend=frontend, phase=scaffe.TEST)
    assert [work.split()[1] for work in net.context.choices.taken] == ["correlate"]
