"""What holds for LSTM as for RNN: the state between passes and outside, bottoms that do not fit."""

import numpy as np
import pytest
from gradient_check import OneLayer, assert_gradient, check_gradients, distinct, numeric_gradient
from unrolled import CONT, STATES, STATIC, D, N, T, X, text, unrolled

from scaffe.errors import NetError, ShapeError

FIRST = [distinct(1, N, D, seed=2), distinct(1, N, D, seed=3)]


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
@pytest.mark.parametrize("static", [[], [STATIC]])
@pytest.mark.parametrize("fields", ["batch_first: true", "reverse: true", "batch_first: true reverse: true"])
def test_batch_and_time_change_places_and_steps_run_backward(kind, static, fields):
    def turned(array):
        array = array[::-1] if "reverse" in fields else array
        return array.swapaxes(0, 1) if "batch" in fields else array

    x, cont = turned(X).copy(), turned(CONT).copy()
    it = OneLayer(text(kind, fields), x, cont, *static)
    expected, _ = unrolled(kind, it.layer.blobs, X, CONT, *static)
    np.testing.assert_allclose(it.forward()[0], turned(expected), rtol=1e-10)
    check_gradients(text(kind, fields), x, cont, *static, smooth=[0, 2][: 1 + len(static)])
    assert bool(it.layer.mixes_samples(it.bottom)) == ("batch" not in fields)


def test_batch_first_names_its_axes_and_takes_no_exposed_state():
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(N x T x \.\.\.\)"):
        OneLayer(text("LSTM", "batch_first: true"), X, CONT[:, :2])
    with pytest.raises(NetError, match="layer 'it'.*batch_first or expose_hidden"):
        OneLayer(text("LSTM", "batch_first: true expose_hidden: true"), X, CONT, *FIRST, tops=3)


@pytest.mark.parametrize("kind", STATES)
def test_cont_has_no_gradient_and_the_batch_is_not_divided(kind):
    it = OneLayer(text(kind), X, CONT)
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*cont.*bottom 1"):
        it.backward(1)
    assert not it.layer.allows_force_backward(1)
    assert "time" in it.layer.mixes_samples(it.bottom)
