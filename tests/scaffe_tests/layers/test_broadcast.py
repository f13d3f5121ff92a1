"""Scale and Bias against numpy's broadcasting and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import ShapeError

FILLER = 'filler { type: "gaussian" mean: 1 std: 0.5 }'
FIELDS = {"Scale": "scale_param", "Bias": "bias_param"}
COMBINE = {"Scale": np.multiply, "Bias": np.add}
# shape, axis, num_axes, the operand's shape, and that with the axes it repeats over
LEARNED = [
    ((2, 3, 4), 1, 1, (3,), (1, 3, 1)),
    ((2, 3, 4), 1, 2, (3, 4), (1, 3, 4)),
    ((2, 3, 4), -1, 1, (4,), (1, 1, 4)),
    ((2, 3, 4), 0, 2, (2, 3), (2, 3, 1)),
    ((2, 3, 4), 0, -1, (2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), 1, 0, (), (1, 1, 1)),
    ((5, 3), 1, 1, (3,), (1, 3)),
]
GIVEN = [((2, 3, 4), 0, (2,)), ((2, 3, 4), 0, (2, 3)), ((2, 3, 4), 0, (2, 3, 4)), ((2, 3, 4), 1, (3,)), ((2, 3), 0, ())]


def text(kind, axis, num_axes=1, more=FILLER):
    return f'type: "{kind}" {FIELDS[kind]} {{ axis: {axis} num_axes: {num_axes} {more} }}'


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize(("shape", "axis", "num_axes", "part", "view"), LEARNED)
def test_a_learned_operand_repeats_over_the_other_axes(kind, shape, axis, num_axes, part, view):
    x = distinct(*shape)
    it = OneLayer(text(kind, axis, num_axes), x)
    operand = it.layer.blobs[0].array
    assert operand.shape == part
    np.testing.assert_array_equal(it.forward()[0], COMBINE[kind](x, operand.reshape(view)))


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize(("shape", "axis", "num_axes", "part", "view"), LEARNED)
def test_gradients_with_a_learned_operand_agree_with_finite_differences(kind, shape, axis, num_axes, part, view):
    check_gradients(text(kind, axis, num_axes), distinct(*shape))


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize(("shape", "axis", "part"), GIVEN)
def test_values_and_gradients_with_two_bottoms(kind, shape, axis, part):
    x, operand = distinct(*shape), distinct(*part, seed=1) + 1
    (y,) = OneLayer(text(kind, axis), x, operand).forward()
    view = (1,) * axis + part + (1,) * (len(shape) - axis - len(part))
    np.testing.assert_array_equal(y, COMBINE[kind](x, operand.reshape(view)))
    check_gradients(text(kind, axis), x, operand)


@pytest.mark.parametrize("bottoms", [1, 2])
def test_scale_adds_a_learned_bias_of_the_factors_shape(bottoms):
    x, operand = distinct(2, 3, 4), distinct(3, seed=1)
    snippet = text("Scale", 1, more=FILLER + ' bias_term: true bias_filler { type: "gaussian" }')
    given = [x, operand][:bottoms]
    it = OneLayer(snippet, *given)
    factor = operand if bottoms == 2 else it.layer.blobs[0].array
    bias = it.layer.blobs[-1].array
    assert len(it.layer.blobs) == 3 - bottoms and bias.any()
    np.testing.assert_allclose(it.forward()[0], x * factor[:, None] + bias[:, None], rtol=1e-12)
    check_gradients(snippet, *given)


@pytest.mark.parametrize(
    ("kind", "more"), [("Scale", FILLER), ("Scale", FILLER + " bias_term: true"), ("Bias", FILLER)]
)
@pytest.mark.parametrize("bottoms", [1, 2])
def test_in_place_gives_the_same_values_and_gradients(kind, more, bottoms):
    x, dy, given = distinct(2, 3, 4), distinct(2, 3, 4, seed=1), [distinct(3, seed=2)][: bottoms - 1]
    snippet = text(kind, 1, more=more)
    apart, in_place = OneLayer(snippet, x, *given), OneLayer(snippet, x, *given)
    in_place.top = in_place.bottom[:1]
    in_place.layer.reshape(in_place.bottom, in_place.top)
    np.testing.assert_array_equal(in_place.forward(), apart.forward())
    for ours, theirs in zip(in_place.backward(dy), apart.backward(dy), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(in_place.layer.blobs, apart.layer.blobs, strict=True):
        np.testing.assert_array_equal(ours.diff_array, theirs.diff_array)


def test_without_fillers_both_change_nothing():
    x = distinct(2, 3)
    np.testing.assert_array_equal(OneLayer('type: "Scale"', x).forward()[0], x)
    np.testing.assert_array_equal(OneLayer('type: "Bias"', x).forward()[0], x)


@pytest.mark.parametrize("kind", FIELDS)
def test_operands_that_are_no_part_of_the_bottom_are_refused_with_both_shapes(kind):
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(4,\).*\(2, 3\)"):
        OneLayer(text(kind, 1), distinct(2, 3), distinct(4))
    with pytest.raises(ShapeError, match=r"layer 'it'.*num_axes 2.*\(2, 3\)"):
        OneLayer(text(kind, 1, 2), distinct(2, 3))
    with pytest.raises(ShapeError, match=r"layer 'it'.*num_axes -2.*\(2, 3\)"):
        OneLayer(text(kind, 1, -2), distinct(2, 3))


@pytest.mark.parametrize("kind", FIELDS)
def test_only_a_learned_operand_with_axis_0_ties_the_batch(kind):
    cases = [
        (text(kind, 0), [(2, 3)], True),
        (text(kind, 0, 0), [(2, 3)], False),
        (text(kind, 1), [(2, 3)], False),
        (text(kind, 0), [(2, 3), (2,)], False),
    ]
    for snippet, shapes, ties in cases:
        it = OneLayer(snippet, *(distinct(*shape) for shape in shapes))
        assert bool(it.layer.mixes_samples(it.bottom)) == ties
