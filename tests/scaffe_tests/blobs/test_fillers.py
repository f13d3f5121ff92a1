"""Fillers: bounds, moments, and exact values where there is no chance."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.blobs.fillers import fill
from scaffe.errors import NetError
from scaffe.proto import FillerParameter

SHAPE = (200, 100, 5, 2)  # fan in 1,000, fan out 2,000
FANS = [("", 1000), ("variance_norm: FAN_OUT", 2000), ("variance_norm: AVERAGE", 1500)]


def filled(text, shape=SHAPE, seed=0):
    values = np.full(shape, np.nan, np.float32)
    fill(values, text_format.Parse(text, FillerParameter()), np.random.default_rng(seed), "layer 'it'")
    return values


def assert_uniform(values, low, high):
    assert values.min() >= low
    assert values.max() <= high
    spread = high - low
    assert values.min() < low + 1e-3 * spread
    assert values.max() > high - 1e-3 * spread
    assert_moments(values, (low + high) / 2, spread / np.sqrt(12))


def assert_moments(values, mean, std):
    """Allow six standard deviations of what so many draws give, those of a normal's fourth moment included."""
    values = values.astype(np.float64)
    assert abs(values.mean() - mean) <= 6 * std / np.sqrt(values.size)
    assert abs(values.var() - std**2) <= 6 * std**2 * np.sqrt(2 / values.size)


def test_constant():
    assert (filled('type: "constant" value: 2.5', (3, 2)) == 2.5).all()
    assert (filled("", (3,)) == 0).all()


def test_uniform_covers_its_range_evenly():
    assert_uniform(filled('type: "uniform" min: -2 max: 5'), -2, 5)


def test_gaussian_has_its_mean_and_deviation():
    assert_moments(filled('type: "gaussian" mean: 3 std: 0.5'), 3, 0.5)


def test_sparse_gaussian_keeps_so_many_values_per_output_on_average():
    values = filled('type: "gaussian" sparse: 10')
    kept = values != 0
    assert abs(kept.mean() - 10 / 200) <= 6 * np.sqrt(0.05 * 0.95 / values.size)
    assert_moments(values[kept], 0, 1)
    assert not filled('type: "gaussian" sparse: 0').any()


@pytest.mark.parametrize(("norm", "fan"), FANS)
def test_xavier_is_uniform_with_variance_one_over_the_fan(norm, fan):
    assert_uniform(filled(f'type: "xavier" {norm}'), -np.sqrt(3 / fan), np.sqrt(3 / fan))


@pytest.mark.parametrize(("norm", "fan"), FANS)
def test_msra_is_gaussian_with_variance_two_over_the_fan(norm, fan):
    assert_moments(filled(f'type: "msra" {norm}'), 0, np.sqrt(2 / fan))


@pytest.mark.parametrize(("norm", "fan"), [("", 1), ("variance_norm: FAN_OUT", 200_000)])
def test_fans_of_one_axis(norm, fan):
    assert_moments(filled(f'type: "msra" {norm}', (200_000,)), 0, np.sqrt(2 / fan))


def test_positive_unitball_rows_sum_to_one():
    values = filled('type: "positive_unitball"', (7, 3, 5))
    np.testing.assert_allclose(values.reshape(7, -1).sum(1), 1, rtol=1e-6)
    assert (values >= 0).all()


@pytest.mark.parametrize(
    ("width", "side"), [(4, [0.25, 0.75, 0.75, 0.25]), (3, [0.5, 1, 0.5]), (2, [0.5, 0.5]), (1, [1])]
)
def test_bilinear_is_a_pyramid(width, side):
    np.testing.assert_allclose(
        filled('type: "bilinear"', (2, 3, width, width)), np.broadcast_to(np.outer(side, side), (2, 3, width, width))
    )


@pytest.mark.parametrize("kind", ["uniform", "gaussian", "xavier", "msra", "positive_unitball"])
def test_values_depend_on_the_generator_alone(kind):
    first, again, other = (filled(f'type: "{kind}"', (4, 5), seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(
    ("text", "shape"),
    [('type: "bilinear"', (2, 3, 4, 5)), ('type: "bilinear"', (4, 4)), ('type: "xavier"', ()), ('type: "none"', (2,))],
)
def test_what_cannot_be_filled_is_an_error_that_says_where(text, shape):
    with pytest.raises(NetError, match="layer 'it'.*filler"):
        filled(text, shape)
