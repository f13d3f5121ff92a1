"""What holds for Scale as for Bias: in place, operands that do not fit, the batch's axis."""

import numpy as np
import pytest
from gradient_check import OneLayer, distinct
from operands import FIELDS, FILLER, text

from scaffe.errors import ShapeError


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
