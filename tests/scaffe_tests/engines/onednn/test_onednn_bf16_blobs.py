"""Blobs of bfloat16 as users see them: float32 values that can be read and written, whatever runs before and behind."""

import numpy as np
import pytest
from both_engines import TOLERANCE, build, needs_bf16, run
from google.protobuf import text_format

import scaffe
from scaffe.compute import Compute
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.primitives import Memory
from scaffe.proto import SolverParameter

pytestmark = needs_bf16
TEXT = """
layer { name: "conv" type: "Convolution" bottom: "x0" top: "conv" convolution_param { num_output: 20 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 3 stride: 2 } }
layer {
  name: "conv2" type: "Convolution" bottom: "pool" top: "conv2" convolution_param { num_output: 24 kernel_size: 3 }
}
layer { name: "drop" type: "Dropout" bottom: "conv2" top: "conv2" }
layer { name: "ip" type: "InnerProduct" bottom: "conv2" top: "y" inner_product_param { num_output: 40 } }
"""
SHAPE = (2, 3, 15, 13)


def low(text=TEXT, shape=SHAPE, **settings):
    return build(text, shape, numbers="bf16", **settings)


def kinds(net):
    """Return the blobs whose values are bfloat16."""
    forms = {name: blob.values.form for name, blob in net.blobs.items()}
    return [name for name, form in forms.items() if isinstance(form, Memory) and form.desc.kind == lib.BF16]


def test_blobs_between_layers_are_bfloat16_and_inputs_and_outputs_are_not():
    net = low()
    net.forward()
    assert kinds(net) == ["conv", "pool", "conv2"]
    y = net.blobs["y"].data  # `forward` shows it, so that its memory does not tell the type
    assert not np.array_equal(y, rounded_once(y))


@pytest.mark.parametrize("reader, rounded", [("TanH", True), ("Softmax", False)])
def test_the_tops_of_a_split_of_a_splits_top_have_the_type_of_its_bottom(reader, rounded):
    text = power("x0", "a") + 'layer { name: "split" type: "Split" bottom: "a" top: "b" top: "c" }'
    text += power("b", "d") + power("c", "e")  # with the next reader of b: a split of it
    net = build(text + f'layer {{ name: "y" type: "{reader}" bottom: "b" top: "y" }}', SHAPE, numbers="bf16")
    net.forward()
    names = {"a", "b", "c", *(name for name in net.blobs if "split" in name)}
    assert len(names) == 5
    assert names & {*kinds(net)} == (names if rounded else set())


def power(bottom, top):
    """Return a layer that passes on what it gets."""
    return f'layer {{ name: "{top}" type: "Power" bottom: "{bottom}" top: "{top}" }}'


@pytest.mark.parametrize(
    "reader, rounded",
    [
        ("SoftmaxWithLoss", False),
        ("Softmax", False),
        ("Reshape", False),
        ("ReLU", True),
    ],
)
def test_a_top_has_the_type_that_all_its_readers_take(reader, rounded):
    text = TEXT.replace('"y"', '"fc"') + 'layer { name: "t" type: "ReLU" bottom: "fc" top: "relu" }'
    label = ' bottom: "x1"' if "Loss" in reader else ""
    fields = "reshape_param { shape { dim: 0 dim: -1 } }" if reader == "Reshape" else ""
    text += f'layer {{ name: "y" type: "{reader}" bottom: "fc"{label} top: "y" {fields} }}'
    text += 'layer { name: "end" type: "Silence" bottom: "relu" }'
    net = build(text, SHAPE, (2,), numbers="bf16")
    net.blobs["x1"].data[...] = 3
    net.forward()
    splits = [name for name in net.blobs if "split" in name]
    assert len(splits) == 2
    assert {name for name in ("fc", *splits) if name in kinds(net)} == ({"fc", *splits} if rounded else set())
    exact = np.array_equal(net.blobs["fc"].data, rounded_once(net.blobs["fc"].data))
    assert exact == rounded


def rounded_once(values):
    """Return numbers near these that bfloat16 has."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits & 0xFFFF0000).view(np.float32)


def test_reading_blobs_shows_float32_and_changes_nothing():
    undisturbed, net = run(low()), low()
    for _ in range(2):
        net.forward()
        for blob in net.blobs.values():
            assert blob.data.dtype == np.float32
            assert blob.data.flags.c_contiguous
            assert blob.diff.shape == blob.shape
        net.reshape()
    net.context.batch_number = 0
    for name, values in run(net).items():
        np.testing.assert_array_equal(values, undisturbed[name], err_msg=name)


def test_values_written_into_a_blob_are_what_the_next_layers_compute_with():
    results = []
    for net in (low(), build(TEXT, SHAPE, engine="reference")):
        net.params["conv2"][0].data[...] = rounded_once(net.params["conv2"][0].data)
        net.forward()
        net.blobs["pool"].data[...] = rounded_once(
            np.arange(net.blobs["pool"].count).reshape(net.blobs["pool"].shape) % 9
        )
        results.append(net.forward(start="conv2", end="conv2")["conv2"].copy())
    np.testing.assert_allclose(*results, rtol=2**-8, atol=TOLERANCE * abs(results[1]).max())


def test_gradients_written_into_a_blob_are_what_the_layers_below_compute_with():
    results = []
    for net in (low(), build(TEXT, SHAPE, engine="reference")):
        net.blobs["x0"].data[...] = rounded_once(net.blobs["x0"].data)
        run(net)
        net.clear_param_diffs()
        net.blobs["conv"].data[...] = 1  # the ReLU passes all gradients on
        net.blobs["conv"].diff[...] = np.arange(net.blobs["conv"].count).reshape(net.blobs["conv"].shape) % 7
        net.backward(start="relu")
        results.append([blob.diff.copy() for blob in net.params["conv"]])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * abs(theirs).max())


@pytest.mark.parametrize("rows", [2, 40])
def test_values_written_before_the_backward_pass_are_what_gradients_of_weights_are_computed_from(rows):
    net = low(TEXT, (rows, *SHAPE[1:]))
    net.forward()
    for name, bottom in (("ip", "conv2"), ("conv2", "pool")):
        net.clear_param_diffs()
        net.blobs["y"].diff[...] = 1
        net.backward()
        net.clear_param_diffs()
        net.blobs[bottom].data[...] = 0
        net.backward()
        assert not net.params[name][0].diff.any()
        assert net.params[name][1].diff.any()


def test_an_array_that_a_user_holds_shows_the_values_after_each_pass():
    net, other = low(phase=scaffe.TEST), low(phase=scaffe.TEST)
    held = {name: blob.data for name, blob in net.blobs.items()}
    for seed in range(2):
        for each in (net, other):
            each.blobs["x0"].data[...] = np.random.default_rng(seed).standard_normal(SHAPE)
            each.forward()
        for name, array in held.items():
            np.testing.assert_array_equal(array, other.blobs[name].data, err_msg=name)
    held["pool"][...] = 2
    y = net.forward(start="conv2")["y"].copy()
    other.blobs["pool"].data[...] = 2
    np.testing.assert_array_equal(y, other.forward(start="conv2")["y"])


def test_other_batches_give_the_numbers_of_a_net_of_their_size():
    net = low(phase=scaffe.TEST)
    for rows in (3, 1, 40):
        fresh = low(shape=(rows, *SHAPE[1:]), phase=scaffe.TEST)
        net.blobs["x0"].reshape(rows, *SHAPE[1:])
        net.reshape()
        net.blobs["x0"].data[...] = fresh.blobs["x0"].data
        net.packed.data[...] = fresh.packed.data
        found, expected = run(net), run(fresh)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("rows", [2, 40])
def test_gradients_of_passes_add_up_in_float32(rows):
    net = low(shape=(rows, *SHAPE[1:]))
    run(net)
    once = net.packed.diff.copy()
    net.backward()
    net.backward()
    np.testing.assert_allclose(net.packed.diff, 3 * once, rtol=1e-5, atol=1e-5 * abs(once).max())


@pytest.mark.parametrize("rows", [2, 40])
def test_without_kept_gradients_parameters_get_the_same_and_no_buffer_stays_taken(rows, monkeypatch):
    kept, released = (low(shape=(rows, *SHAPE[1:])) for _ in range(2))
    released.keep_diffs = False
    pool, taken = released.engine.gradients, []
    take = pool.take
    monkeypatch.setattr(pool, "take", lambda *given: taken.append(take(*given)) or taken[-1])
    for net in (kept, released):
        net.forward()
        net.blobs["y"].diff[...] = 1
        for i in reversed(range(len(net.layers))):
            net.backward_layer(i)
    np.testing.assert_array_equal(released.packed.diff, kept.packed.diff)
    assert taken and {id(buffer) for buffer in taken} == {id(buffer) for buffer in pool.free}


def test_infinities_and_nans_pass_through_and_denormals_may_become_zeros():
    """The instruction that converts to bfloat16 reads and writes denormals as zeros."""
    names = zip(("x0", "a"), ("a", "y"), strict=True)
    text = "".join(f'layer {{ name: "to {b}" type: "Power" bottom: "{a}" top: "{b}" }}' for a, b in names)
    values = np.array([[np.inf, -np.inf, np.nan, 0.0, 2.0**-126, 3e38, 2.0**-130, -(2.0**-133)]], np.float32)
    net = build(text, values.shape, numbers="bf16")
    net.blobs["x0"].data[...] = values
    net.forward()
    assert kinds(net) == ["a"]
    found = net.blobs["y"].data[0]
    np.testing.assert_allclose(found[:-2], values[0, :-2], rtol=2**-8)
    np.testing.assert_array_equal(np.signbit(found[:-2]), np.signbit(values[0, :-2]))
    assert found[-2] in (0, values[0, -2])
    assert found[-1] in (0, values[0, -1])


def test_a_resumed_solver_goes_on_as_if_it_had_not_stopped(tmp_path):
    param = SolverParameter(base_lr=0.05, momentum=0.9, lr_policy="fixed", snapshot_prefix=str(tmp_path / "bf16"))
    loss = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" }'
    data = """layer { name: "x0" type: "DummyData" top: "x0" top: "label" dummy_data_param {
        shape { dim: 4 dim: 3 dim: 15 dim: 13 } shape { dim: 4 }
        data_filler { type: "gaussian" } data_filler { value: 3 } } }"""
    text_format.Parse(data + TEXT + loss, param.net_param)

    def solver():
        return scaffe.Solver(param, compute=Compute("onednn", numbers="bf16"))

    whole = solver()
    whole.step(2)
    state = whole.snapshot()
    whole.step(2)
    resumed = solver()
    resumed.restore(state)
    resumed.step(2)
    np.testing.assert_array_equal(resumed.net.packed.data, whole.net.packed.data)
    assert kinds(whole.net) == ["conv", "pool", "conv2"]
