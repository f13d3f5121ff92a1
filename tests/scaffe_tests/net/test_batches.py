"""forward_all and forward_backward_all: the rows of a loop over single batches, without those of the padding."""

import numpy as np
import pytest
from both_engines import needs_onednn
from google.protobuf import text_format

import scaffe
from scaffe.compute import Compute
from scaffe.errors import CallError, ShapeError, UnknownBlobError
from scaffe.proto import NetParameter

NET = """
force_backward: true
layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 4 dim: 2 dim: 5 dim: 5 } } }
layer { name: 'conv' type: 'Convolution' bottom: 'x' top: 'conv'
  convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' }
layer { name: 'ip' type: 'InnerProduct' bottom: 'conv' top: 'ip'
  inner_product_param { num_output: 6 weight_filler { type: 'xavier' } } }
layer { name: 'y' type: 'Softmax' bottom: 'ip' top: 'y' }
"""
SUM = "layer { name: 'sum' type: 'Reduction' bottom: 'y' top: 'sum' }"
COUNTS = [0, 1, 3, 4, 5, 8, 11]
ENGINES = ["reference", pytest.param("onednn", marks=needs_onednn)]


def build(text=NET, engine="reference"):
    return scaffe.Net(text_format.Parse(text, NetParameter()), scaffe.TEST, compute=Compute(engine, threads=1))


def samples(count, *shape):
    return np.random.default_rng(count).standard_normal((count, *shape)).astype(np.float32)


def one_by_one(net, x, gradients=None):
    """Return what each sample gives alone: y, conv, and the gradients of x and ip."""
    parts = {name: [] for name in ("y", "conv", "x", "ip")}
    for i in range(len(x)):
        out = net.forward(blobs=["conv"], x=np.repeat(x[i : i + 1], 4, 0))
        diffs = net.backward(
            diffs=["ip"], **({} if gradients is None else {"y": np.repeat(gradients[i : i + 1], 4, 0)})
        )
        for name, values in {**out, **diffs}.items():
            parts[name].append(values[0].copy())
    return {name: np.array(rows) for name, rows in parts.items()}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("count", COUNTS)
def test_outputs_have_a_row_for_each_sample(engine, count):
    net, x = build(engine=engine), samples(count, 2, 5, 5)
    found = net.forward_all(blobs=["conv"], x=x)
    assert set(found) == {"y", "conv"}
    assert found["y"].shape == (count, 6) and found["conv"].shape == (count, 3, 3, 3)
    expected = one_by_one(net, x)
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name].reshape(values.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", COUNTS)
def test_gradients_have_a_row_for_each_sample(count):
    net, x, gradients = build(), samples(count, 2, 5, 5), samples(count, 6)
    values, diffs = net.forward_backward_all(blobs=["conv"], diffs=["ip"], x=x, y=gradients)
    assert set(values) == {"y", "conv"} and set(diffs) == {"x", "ip"}
    expected = one_by_one(net, x, gradients)
    for name, found in {**values, **diffs}.items():
        assert len(found) == count
        np.testing.assert_allclose(found, expected[name].reshape(found.shape), rtol=1e-5, atol=1e-6)


def test_parameters_gradients_are_summed_over_the_batches():
    net, x, gradients = build(), samples(8, 2, 5, 5), samples(8, 6)
    net.forward_backward_all(x=x, y=gradients)
    both = net.params["ip"][0].diff.copy()
    net.clear_param_diffs()
    parts = []
    for half in (slice(4), slice(4, 8)):
        net.clear_param_diffs()
        net.forward(x=x[half])
        net.backward(y=gradients[half])
        parts.append(net.params["ip"][0].diff.copy())
    np.testing.assert_allclose(both, sum(parts), rtol=1e-5, atol=1e-7)


def test_without_arrays_for_one_pass_it_uses_what_the_blobs_hold():
    net, x, gradients = build(), samples(6, 2, 5, 5), samples(6, 6)
    net.blobs["y"].diff[...] = gradients[:1]
    diffs = net.forward_backward_all(x=x)[1]
    np.testing.assert_allclose(
        diffs["x"], one_by_one(net, x, np.repeat(gradients[:1], 6, 0))["x"], rtol=1e-5, atol=1e-6
    )
    net.blobs["x"].data[...] = x[:4]
    values, diffs = net.forward_backward_all(y=gradients)
    np.testing.assert_array_equal(values["y"][4:], values["y"][:2])
    assert diffs["x"].shape == (6, 2, 5, 5)


def test_an_output_without_rows_has_a_number_for_each_batch():
    net, x = build(NET + SUM), samples(11, 2, 5, 5)
    found = net.forward_all(x=x)["sum"]
    np.testing.assert_allclose(found, [4, 4, 4], rtol=1e-5)  # the padding's rows sum up to 1 each too
    assert net.forward(x=x[:4])["sum"].shape == ()


def test_values_without_rows_are_those_of_each_batch():
    """A sum over each batch, and a blob whose axis 0 has another length."""
    other = "layer { name: 'three' type: 'Input' top: 'three' input_param { shape { dim: 3 } } }"
    net, x = build(NET + SUM.replace("'y'", "'ip'") + other), samples(8, 2, 5, 5)
    net.blobs["three"].data[...] = [1, 2, 3]
    found = net.forward_all(blobs=["ip", "three"], x=x)
    np.testing.assert_allclose(found["sum"], [found["ip"][:4].sum(), found["ip"][4:].sum()], rtol=1e-4, atol=1e-5)
    assert found["three"].tolist() == [1, 2, 3, 1, 2, 3]


def test_the_arrays_are_the_callers():
    net, x = build(), samples(4, 2, 5, 5)
    first = net.forward_all(x=x)["y"]
    kept = first.copy()
    assert not np.shares_memory(first, net.blobs["y"].data)
    net.forward_all(x=2 * x)
    np.testing.assert_array_equal(first, kept)
    assert (x == samples(4, 2, 5, 5)).all()


def test_whole_batches_are_views_of_what_is_given_and_zeros_fill_the_last():
    x = samples(6, 2, 5, 5)
    first, last = build()._batch({"x": x})
    assert np.shares_memory(first["x"], x)
    np.testing.assert_array_equal(last["x"], np.concatenate([x[4:], np.zeros_like(x[:2])]))


def test_what_can_not_be_given_is_named():
    net = build()
    with pytest.raises(CallError, match="no arrays are given; the net's blobs that can be given: x$"):
        net.forward_all()
    with pytest.raises(UnknownBlobError, match="'z' can't be given; the net's blobs that can: x y$"):
        net.forward_backward_all(z=samples(4, 2))
    with pytest.raises(ShapeError, match="expected arrays of one length, got rows: 'x' 4, 'y' 5"):
        net.forward_backward_all(x=samples(4, 2, 5, 5), y=samples(5, 6))
    with pytest.raises(UnknownBlobError, match="no blob 'z'; blobs: x conv ip y"):
        net.forward_all(blobs=["z"], x=samples(4, 2, 5, 5))
    with pytest.raises(ValueError, match=r"blob 'x' has shape \(4, 2, 5, 5\), got \(4, 3, 5, 5\)"):
        net.forward_all(x=samples(4, 3, 5, 5))
