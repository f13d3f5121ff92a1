"""Changes of colours against Python's own conversion of hues, and their limits."""

import colorsys

import numpy as np
import pytest

from readers.distortion import Distortion, from_hsv, to_hsv

IMAGE = np.random.default_rng(0).integers(0, 256, (3, 6, 7)).astype(np.uint8)
GREY = np.full((3, 2, 2), 100, np.uint8)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_hue_saturation_and_value_are_pythons():
    hue, saturation, value = to_hsv(IMAGE)
    for i, j in np.ndindex(6, 7):
        blue, green, red = IMAGE[:, i, j] / 255
        expected = colorsys.rgb_to_hsv(red, green, blue)
        np.testing.assert_allclose((hue[i, j] / 180, saturation[i, j], value[i, j] / 255), expected, atol=1e-12)
    np.testing.assert_array_equal(from_hsv(hue, saturation, value), IMAGE)
    black = np.zeros((3, 1, 1), np.uint8)
    np.testing.assert_array_equal(from_hsv(*to_hsv(black)), black)


@pytest.mark.parametrize("seed", range(6))
def test_brightness_adds_and_contrast_multiplies(seed):
    bright = Distortion(brightness=(1, 30)).apply(GREY, rng(seed))
    assert len(np.unique(bright)) == 1 and abs(int(bright[0, 0, 0]) - 100) <= 30
    strong = Distortion(contrast=(1, 0.5, 3)).apply(GREY, rng(seed))
    assert len(np.unique(strong)) == 1 and 50 <= strong[0, 0, 0] <= 255
    assert not np.array_equal(bright, GREY) and not np.array_equal(strong, GREY)


def test_without_saturation_a_picture_is_grey_and_its_values_stay():
    found = Distortion(saturation=(1, 0, 0)).apply(IMAGE, rng())
    np.testing.assert_array_equal(found, np.broadcast_to(IMAGE.max(0), IMAGE.shape))


def test_a_hue_turns_and_stays_above_0():
    red = np.zeros((3, 1, 1), np.uint8)
    red[2] = 200
    found = {tuple(Distortion(hue=(1, 60)).apply(red, rng(seed)).reshape(3)) for seed in range(20)}
    assert all(max(pixel) == 200 and min(pixel) == 0 for pixel in found)
    assert (0, 0, 200) in found and len(found) > 5 and all(pixel[0] == 0 for pixel in found)


def test_channels_change_places_and_nothing_is_changed_by_chance_0():
    found = Distortion(order=1).apply(IMAGE, rng(3))
    assert sorted(map(bytes, found)) == sorted(map(bytes, IMAGE))
    np.testing.assert_array_equal(Distortion().apply(IMAGE, rng()), IMAGE)
