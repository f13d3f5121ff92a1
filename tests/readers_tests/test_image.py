"""Resizing, against Caffe's (OpenCV's) own output and plain bilinear interpolation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import decode_image, resize

sides = st.integers(1, 40)


def bilinear(plane: np.ndarray, height: int, width: int) -> np.ndarray:
    """Interpolate one channel in double precision, with pixel centres half a pixel from the edges."""
    rows = np.clip((np.arange(height) + 0.5) * plane.shape[0] / height - 0.5, 0, plane.shape[0] - 1)
    columns = np.clip((np.arange(width) + 0.5) * plane.shape[1] / width - 0.5, 0, plane.shape[1] - 1)
    across = np.array([np.interp(columns, np.arange(plane.shape[1]), row) for row in plane])
    return np.array([np.interp(rows, np.arange(plane.shape[0]), column) for column in across.T]).T


@pytest.mark.parametrize(
    ("case", "height", "width", "mean"),
    [("data_imagedata_resize", 24, 28, (104, 117, 123)), ("data_imagedata_upsize", 90, 60, (0, 0, 0))],
)
def test_resizing_is_opencvs_to_the_bit(cases, case, height, width, mean):
    with np.load(cases / "parity" / case / "arrays.npz") as arrays:
        theirs = arrays["data_pass1"] + np.array(mean, np.float32)[:, None, None]
    for number, expected in enumerate(theirs):
        content = (cases / f"caffe/artefacts/images/odd{number}.png").read_bytes()
        np.testing.assert_array_equal(resize(decode_image(content, True), height, width), expected)


@given(sides, sides, sides, sides, st.integers(0, 9))
def test_resizing_is_bilinear_interpolation(height, width, to_height, to_width, seed):
    image = np.random.RandomState(seed).randint(0, 256, (2, height, width), np.uint8)
    resized = resize(image, to_height, to_width)
    expected = [bilinear(plane, to_height, to_width) for plane in image.astype(float)]
    assert (resized.dtype, resized.shape) == (np.uint8, (2, to_height, to_width))
    np.testing.assert_allclose(resized, expected, atol=1.5)


@given(sides, sides, sides, sides, st.integers(0, 9))
def test_floats_are_resized_without_rounding_to_whole_numbers(height, width, to_height, to_width, seed):
    image = np.random.RandomState(seed).rand(2, height, width).astype(np.float32)
    resized = resize(image, to_height, to_width)
    expected = [bilinear(plane, to_height, to_width) for plane in image.astype(float)]
    assert (resized.dtype, resized.shape) == (np.float32, (2, to_height, to_width))
    np.testing.assert_allclose(resized, expected, atol=1e-5)


@given(sides, sides, st.integers(0, 255))
def test_an_image_of_one_colour_keeps_it(height, width, value):
    assert (resize(np.full((3, 7, 9), value, np.uint8), height, width) == value).all()


def test_half_the_size_is_the_rounded_mean_of_two_by_two():
    image = np.random.RandomState(1).randint(0, 256, (3, 8, 6), np.uint8)
    means = image.reshape(3, 4, 2, 3, 2).mean((2, 4))
    np.testing.assert_array_equal(resize(image, 4, 3), np.floor(means + 0.5))


def test_an_image_of_the_right_size_is_copied():
    image = np.zeros((1, 4, 4), np.uint8)
    resize(image, 4, 4)[...] = 1
    assert not image.any()
