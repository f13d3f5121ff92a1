"""Which way the engine computes: chosen by timing, kept in files and snapshots, the same numbers in each."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from both_engines import TOLERANCE, assert_alike, build, needs_onednn, run
from google.protobuf import text_format

import scaffe
from scaffe.compute import Compute
from scaffe.devices.choices import Choices, Work, seconds
from scaffe.errors import OnednnError, PlanError
from scaffe.files import plan_file
from scaffe.proto import NetParameter, SolverParameter

pytestmark = needs_onednn

CONVOLUTION = """layer { name: "it" type: "Convolution" bottom: "x0" top: "y"
                 convolution_param { num_output: 24 kernel_size: 3 pad: 1 stride: 2 group: 2 } }"""
SHAPE = (2, 8, 9, 7)
WORK = "Convolution 8x9x7 by 2x12x4x3x3, stride 2x2, pad 1x1, dilation 1x1"
LAYOUTS = ("blocked", "channels last", "plain")
WAYS = [a if a == b else f"{a}, weight gradient {b}" for a in LAYOUTS for b in LAYOUTS]
SOLVER = """
base_lr: 0.01 lr_policy: "fixed" max_iter: 4 random_seed: 1 snapshot_after_train: false
net_param {
  layer { name: "data" type: "DummyData" top: "x0" top: "t"
          dummy_data_param { shape { dim: 4 dim: 8 dim: 9 dim: 7 } shape { dim: 4 dim: 24 dim: 5 dim: 4 }
                             data_filler { type: "gaussian" } data_filler { type: "gaussian" } } }
  layer { name: "it" type: "Convolution" bottom: "x0" top: "y"
          convolution_param { num_output: 24 kernel_size: 3 pad: 1 stride: 2 group: 2 weight_filler { type: "msra" } } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }
}
"""


def solver(tmp_path, plan="fixed"):
    param = text_format.Parse(SOLVER + f'snapshot_prefix: "{tmp_path}/s"', SolverParameter())
    return scaffe.Solver(param, compute=Compute(engine="onednn", plan=plan))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_numbers(way):
    net = build(CONVOLUTION, SHAPE)
    net.context.choices.taken[WORK] = way
    assert_alike(run(net, 2), run(build(CONVOLUTION, SHAPE, engine="reference"), 2))


def test_timing_takes_one_of_the_ways_and_leaves_all_values_alone(caplog):
    caplog.set_level("INFO", "scaffe")
    net = build(CONVOLUTION, SHAPE)
    before = net.packed.data.copy(), net.blobs["x0"].data.copy()
    taken = Choices("timed").time([net])
    assert set(taken) == {WORK} and set(taken.values()) <= set(WAYS)
    assert f"Plan: {WORK}: {taken[WORK]}, " in caplog.text
    np.testing.assert_array_equal(net.packed.data, before[0])
    np.testing.assert_array_equal(net.blobs["x0"].data, before[1])
    assert not net.packed.diff.any() and not net.blobs["y"].data.any()


def net_with(works, machine=""):
    """Return what choices ask of a net with one layer that has those pieces of work."""
    return SimpleNamespace(times_kernels=True, machine=machine, works=lambda: iter([works]))


def test_under_a_budget_the_largest_work_is_timed_first_and_the_rest_keeps_its_fixed_way(caplog):
    asked = []

    def work(name, products):
        return Work(lambda: asked.append(name) or {"fixed": 2.0, "other": 1.0}, products)

    caplog.set_level("INFO", "scaffe")
    works = {name: work(name, products) for name, products in (("small", 1), ("large", 9), ("middle", 5))}
    assert Choices("auto").time([net_with(works)]) == dict.fromkeys(("large", "middle", "small"), "other")
    assert asked == ["large", "middle", "small"]
    asked.clear()
    caplog.clear()
    choices = Choices("auto", budget=0)
    assert choices.time([net_with(works)]) == {} and asked == []
    assert choices.of("large", "fixed") == "fixed"
    assert re.search(r"Plan: timed 0 pieces of work in .* s, left 3 for lack of time", caplog.text)
    assert len(Choices("timed", budget=0).time([net_with(works)])) == 3


def test_what_was_timed_on_a_machine_is_found_by_the_next_run_there(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    caplog.set_level("INFO", "scaffe")
    asked = []

    def net(machine, batch):
        work = Work(lambda: asked.append(batch) or {"fixed": 2.0, "other": 1.0}, 1, f"batch {batch}")
        return net_with({"it": work}, machine)

    for machine, batch, again in (("a", 1, 1), ("a", 1, 0), ("a", 2, 1), ("b/c", 1, 1), ("b/c", 1, 0)):
        asked.clear()
        assert Choices().time([net(machine, batch)]) == {"it": "other"}
        assert asked == [batch] * again, (machine, batch)
    assert "found 1 in " in caplog.text
    assert (tmp_path / "scaffe/plans/b-c.txt").read_text() == "it; batch 1: other\n"
    Choices("timed").time([net("a", 1)])
    assert asked == [1]  # timed again
    (tmp_path / "scaffe/plans/a.txt").write_text("no plan")
    assert Choices().time([net("a", 1)]) == {"it": "other"}
    assert asked == [1, 1]


def test_where_nothing_can_be_kept_a_line_says_so(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "scaffe")
    (tmp_path / "scaffe").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    works = {"it": Work(lambda: {"fixed": 1.0})}
    assert Choices().time([net_with(works, "a")]) == {"it": "fixed"}
    assert "Plan: not kept for other runs: " in caplog.text


def test_a_user_without_a_home_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user that the system does not know
    for machine in ("", "a"):
        assert Choices().time([net_with({"it": Work(lambda: {"fixed": 1.0})}, machine)]) == {"it": "fixed"}
    assert not [*tmp_path.iterdir()]


def test_the_fastest_way_is_taken_and_a_near_tie_changes_nothing():
    choices = Choices("timed")
    works = {
        "a": Work(lambda: {"fixed": 1.0, "other": 0.5, "third": 0.7}),
        "b": Work(lambda: {"fixed": 1.0, "other": 0.95}),
    }
    assert choices.time([net_with(works)]) == {"a": "other", "b": "fixed"}


def test_nothing_is_timed_where_the_plan_is_fixed_or_known():
    net = build(CONVOLUTION, SHAPE)
    assert Choices().time([net]) == {}
    known = Choices("timed")
    known.taken[WORK] = "plain"
    assert known.time([net]) == {WORK: "plain"}


def test_a_plan_file_is_written_once_and_then_read(tmp_path):
    path = tmp_path / "net.plan"
    first = Choices(str(path))
    first.time([build(CONVOLUTION, SHAPE)])
    assert Choices(str(path)).taken == first.taken
    path.write_text(f"{WORK}: plain\n")
    again = Choices(str(path))
    assert again.time([build(CONVOLUTION, SHAPE)]) == {WORK: "plain"}


def test_a_file_that_is_no_plan_is_named(tmp_path):
    path = tmp_path / "x"
    path.write_text("a: b\nnonsense\n")
    with pytest.raises(PlanError, match="x, line 2: expected 'work: way', got 'nonsense'"):
        Choices(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="x: not a text file"):
        Choices(str(path))


def test_an_unknown_way_is_named_with_the_known_ones():
    net = build(CONVOLUTION, SHAPE)
    net.context.choices.taken = plan_file.parse([f"{WORK}: sideways"], "net.plan")
    with pytest.raises(PlanError, match="sideways'; expected one of blocked, channels last, plain"):
        net.forward()


def test_a_snapshot_keeps_the_plan_and_a_resumed_run_computes_by_it(tmp_path):
    whole = solver(tmp_path, "timed")
    whole.job.choices.taken[WORK] = "plain"
    whole.step(2)
    state = whole.snapshot()
    whole.step(2)
    resumed = solver(tmp_path)
    resumed.step(1)  # by its own choice
    resumed.restore(state)
    assert resumed.job.choices.taken == {WORK: "plain"}
    resumed.step(2)
    np.testing.assert_array_equal(resumed.net.packed.data, whole.net.packed.data)


def test_a_timed_run_has_the_numbers_of_a_fixed_one(tmp_path):
    timed, fixed = solver(tmp_path, "timed"), solver(tmp_path)
    for each in (timed, fixed):
        each.step(3)
    assert timed.job.choices.taken and not fixed.job.choices.taken
    np.testing.assert_allclose(timed.net.packed.data, fixed.net.packed.data, atol=TOLERANCE)


# bfloat16


def low(values):
    """Return numbers that bfloat16 has: with it and without, the products are the same then."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits & 0xFFFF0000).view(np.float32)


def low_net(layer, shape, compute):
    text = f'layer {{ name: "x0" type: "Input" top: "x0" input_param {{ shape {{ {shape} }} }} }}\n{layer}'
    net = scaffe.Net(
        text_format.Parse("force_backward: true\n" + text, NetParameter()), scaffe.TRAIN,
        compute=Compute("onednn" if compute == "bf16" else "reference", numbers=compute),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for blob in (net.blobs["x0"], *(blob for blobs in net.params.values() for blob in blobs)):
        blob.data[...] = low(rng.standard_normal(blob.shape))
    net.forward()
    net.blobs["y"].diff[...] = low(rng.standard_normal(net.blobs["y"].shape))
    for _ in range(2):
        net.backward()
    net.packed.data *= -2  # as an update does, past the blobs
    net.forward()
    net.backward()
    found = {"y": net.blobs["y"].data, "x diff": net.blobs["x0"].diff}
    return net, found | {f"it[{i}]": blob.diff for i, blob in enumerate(net.params["it"])}


INNER = 'layer { name: "it" type: "InnerProduct" bottom: "x0" top: "y" inner_product_param { num_output: 40 FIELDS } }'


@pytest.mark.parametrize("layer", [CONVOLUTION, INNER.replace("FIELDS", ""), INNER.replace("FIELDS", "axis: 2")])
def test_bfloat16_products_are_summed_in_float32(layer):
    shape = "dim: 2 dim: 8 dim: 9 dim: 7"
    try:
        net, found = low_net(layer, shape, "bf16")
    except OnednnError as error:
        pytest.skip(str(error))
    assert net.layer_dict["it"]._primitives is not None
    assert_alike(found, low_net(layer, shape, "float32")[1])


def test_bfloat16_rounds_what_it_multiplies():
    layer = INNER.replace("FIELDS", "bias_term: false")
    try:
        net, _ = low_net(layer, "dim: 3 dim: 50", "bf16")
    except OnednnError as error:
        pytest.skip(str(error))
    net.blobs["x0"].data[...] = 1 + 2**-12  # becomes 1
    net.params["it"][0].data[...] = 1
    net.forward()
    np.testing.assert_array_equal(net.blobs["y"].data, np.full((3, 40), 50))
    assert net.blobs["y"].data.dtype == net.params["it"][0].data.dtype == np.float32


def test_bfloat16_without_onednn_is_refused():
    with pytest.raises(scaffe.errors.EngineError, match="compute in float32 alone, not in bf16; take engine onednn"):
        scaffe.Net(NetParameter(), scaffe.TRAIN, compute=Compute("reference", numbers="bf16"))
    with pytest.raises(scaffe.errors.EngineError, match="unknown kind of number 'half'"):
        scaffe.Net(NetParameter(), scaffe.TRAIN, compute=Compute(numbers="half"))


def test_work_without_a_kernel_has_no_choice_and_nothing_new_is_not_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = net_with({"none": Work(dict)})
    for mode in ("timed", "fixed", "plan.txt"):
        assert Choices(mode).time([net]) == {}
    assert not list(tmp_path.iterdir())


def test_a_kernel_runs_once_to_warm_up_and_a_hopeless_one_is_timed_once():
    runs = []
    for best, calls in ((1.0, 1 + 1), (10.0, 1 + 3)):
        runs.clear()
        assert seconds(lambda: runs.append(0), best, lambda run: (run(), 2.0)[1]) == 2.0
        assert len(runs) == calls
