"""LSTM and RNN against themselves written out step by step, finite differences, and Caffe over two passes."""

import json

import numpy as np
import pytest
from gradient_check import OneLayer, assert_gradient, check_gradients, distinct, numeric_gradient

import scaffe
from scaffe.errors import NetError, ShapeError

T, N, D = 4, 3, 2
X, STATIC = distinct(T, N, 5), distinct(N, 4, seed=1)
CONT = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]], float)
FIRST = [distinct(1, N, D, seed=2), distinct(1, N, D, seed=3)]
STATES = {"LSTM": 2, "RNN": 1}


def text(kind, fields=""):
    fillers = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'
    return f'type: "{kind}" recurrent_param {{ num_output: {D} {fillers} {fields} }}'


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def unrolled(kind, blobs, x, cont, static=None, state=None):
    """Return the top and the state at the end, computed step by step."""
    blobs = [blob.array for blob in blobs]
    hidden, cell = (np.zeros((N, D)), np.zeros((N, D))) if state is None else (*state, None)[:2]
    outputs = []
    w_static, w_hidden = (blobs[2], blobs[3]) if static is not None else (None, blobs[2])
    for t in range(len(x)):
        pre = x[t].reshape(N, -1) @ blobs[0].T + blobs[1] + (cont[t][:, None] * hidden) @ w_hidden.T
        if static is not None:
            pre = pre + static.reshape(N, -1) @ w_static.T
        if kind == "RNN":
            hidden = np.tanh(pre)
            outputs.append(np.tanh(hidden @ blobs[-2].T + blobs[-1]))
        else:
            i, f, o, g = np.split(pre, 4, axis=1)
            cell = cont[t][:, None] * sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
            outputs.append(hidden)
    return np.array(outputs), [hidden, cell][: STATES[kind]]


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("static", [[], [STATIC]])
@pytest.mark.parametrize("x", [X, X.reshape(T, N, 5, 1, 1)])
def test_steps_follow_one_another_and_sequences_begin_where_cont_is_0(kind, static, x):
    it = OneLayer(text(kind), x, CONT, *static)
    expected, _ = unrolled(kind, it.layer.blobs, X, CONT, *static)
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-10)


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("static", [[], [STATIC]])
def test_gradients_agree_with_finite_differences(kind, static):
    check_gradients(text(kind), X, CONT, *static, smooth=[0, 2][: 1 + len(static)])


@pytest.mark.parametrize("kind", STATES)
def test_the_state_carries_over_to_the_next_pass(kind):
    it = OneLayer(text(kind), X, CONT)
    it.forward()
    _, state = unrolled(kind, it.layer.blobs, X, CONT)
    it.bottom[1].array[0] = 1
    expected, _ = unrolled(kind, it.layer.blobs, X, it.bottom[1].array, state=state)
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-10)


@pytest.mark.parametrize("kind", STATES)
def test_the_state_carries_over_to_a_pass_of_other_length(kind):
    it = OneLayer(text(kind), X, CONT)
    it.forward()
    _, state = unrolled(kind, it.layer.blobs, X, CONT)
    it.bottom[0].array, it.bottom[1].array = X[:2], np.ones((2, N))
    it.layer.reshape(it.bottom, it.top)
    it.top[0].array = np.zeros(it.top[0].shape)
    expected, _ = unrolled(kind, it.layer.blobs, X[:2], np.ones((2, N)), state=state)
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-10)


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("static", [[], [STATIC]])
def test_an_exposed_state_comes_from_the_bottoms_and_goes_to_the_tops(kind, static):
    first = FIRST[: STATES[kind]]
    it = OneLayer(text(kind, "expose_hidden: true"), X, np.ones((T, N)), *static, *first, tops=1 + len(first))
    for _ in range(2):  # nothing carries over
        y, *last = it.forward()
        state = [blob[0] for blob in first]
        expected, end = unrolled(kind, it.layer.blobs, X, np.ones((T, N)), *(static or [None]), state=state)
        np.testing.assert_allclose(y, expected, rtol=1e-10)
        np.testing.assert_allclose(last, np.array(end)[:, None], rtol=1e-10)


@pytest.mark.parametrize("kind", STATES)
def test_no_gradient_goes_through_the_exposed_state(kind):
    first = FIRST[: STATES[kind]]
    it = OneLayer(text(kind, "expose_hidden: true"), X, np.ones((T, N)), *first, tops=1 + len(first))
    dy = distinct(T, N, D, seed=4)
    tops = [dy, *(0 * blob for blob in first)]
    it.forward()
    down = [True, False] + [True] * len(first)
    dx, _, *dfirst = it.backward(dy, *(7 + blob for blob in first), down=down)
    assert not any(diff.any() for diff in dfirst)
    assert_gradient(dx, numeric_gradient(it, tops, it.bottom[0].array), "bottom 0")


@pytest.mark.parametrize("case", ["rnn_two_passes", "rnn_carry_two_passes"])
def test_two_passes_are_caffes(cases, case):
    folder = cases / "parity" / case
    meta, arrays = json.loads((folder / "meta.json").read_text()), np.load(folder / "arrays.npz")
    net = scaffe.Net(folder / "net.prototxt", getattr(scaffe, meta["phase"]))
    for i, blob in enumerate(net.params["rnn"]):
        blob.data[...] = arrays[f"param_rnn_{i}"]
    for name in ("x", "cont"):
        net.blobs[name].data[...] = arrays[f"in_{name}"]
    for suffix in ("", "_pass2"):
        net.clear_param_diffs()
        net.forward()
        close(net.blobs["y"].data, arrays["top_y" + suffix])
        net.blobs["y"].diff[...] = arrays["topdiff_y" + suffix]
        net.backward()
        close(net.blobs["x"].diff, arrays["bottomdiff_x" + suffix])
        for i, blob in enumerate(net.params["rnn"]):
            close(blob.diff, arrays[f"paramdiff_rnn_{i}{suffix}"])


def close(ours, caffes):
    assert np.abs(ours - caffes).max() <= 1e-5 * np.abs(caffes).max()


@pytest.mark.parametrize("kind", STATES)
def test_bottoms_that_do_not_fit_are_refused(kind):
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(4, 3, 5\).*\(4, 2\)"):
        OneLayer(text(kind), X, CONT[:, :2])
    with pytest.raises(ShapeError, match=r"layer 'it'.*bottom 2.*\(2, 4\)"):
        OneLayer(text(kind), X, CONT, STATIC[:2])
    with pytest.raises(NetError, match="layer 'it'.*num_output"):
        OneLayer(f'type: "{kind}"', X, CONT)
    with pytest.raises(NetError, match="layer 'it'.*expose_hidden true takes.*got 2 and 1"):
        OneLayer(text(kind, "expose_hidden: true"), X, CONT)
    with pytest.raises(ShapeError, match=r"layer 'it'.*bottom 2.*\(1, 3, 5\)"):
        first = [np.zeros((1, N, 5))] * STATES[kind]
        OneLayer(text(kind, "expose_hidden: true"), X, CONT, *first, tops=1 + len(first))


@pytest.mark.parametrize("kind", STATES)
def test_cont_has_no_gradient_and_the_batch_is_not_divided(kind):
    it = OneLayer(text(kind), X, CONT)
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*cont.*bottom 1"):
        it.backward(1)
    assert not it.layer.allows_force_backward(1)
    assert "time" in it.layer.mixes_samples(it.bottom)


@pytest.mark.parametrize("case", ["lstm_static", "rnn", "rnn_expose_hidden"])
def test_weights_that_caffe_stored_have_our_order(cases, case):
    folder = cases / "parity" / case
    net = scaffe.Net(folder / "net.prototxt", scaffe.TEST, weights=folder / "params.caffemodel")
    arrays, layer = np.load(folder / "arrays.npz"), case.partition("_")[0]
    for i, blob in enumerate(net.params[layer]):
        np.testing.assert_array_equal(blob.data, arrays[f"param_{layer}_{i}"])
    assert f"param_{layer}_{len(net.params[layer])}" not in arrays
