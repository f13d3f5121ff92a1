"""Filters side by side: places, range and colours."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from scaffe.tools.filters import png, tiled


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_each_filter_is_at_its_place_and_the_rest_is_white(count: int) -> None:
    weights = np.linspace(-1, 1, count * 6, dtype=np.float32).reshape(count, 1, 2, 3)
    image = tiled(weights)[..., 0]
    columns = {1: 1, 2: 2, 4: 2, 5: 3}[count]
    assert image.shape == (3 * -(-count // columns) + 1, 4 * columns + 1)
    expected = np.full(image.shape, 255)
    for k, one in enumerate(weights[:, 0]):
        row, column = divmod(k, columns)
        expected[1 + 3 * row : 3 + 3 * row, 1 + 4 * column : 4 + 4 * column] = np.rint((one + 1) * 127.5)
    np.testing.assert_array_equal(image, expected)


def test_three_channels_are_colours_and_others_their_mean() -> None:
    weights = np.zeros((1, 3, 1, 1), np.float32)
    weights[0, :, 0, 0] = 0, 0.5, 1
    assert tiled(weights)[1, 1].tolist() == [0, 128, 255]
    pair = np.array([[[[0.0]], [[2.0]]], [[[0.0]], [[0.0]]]], np.float32)  # means 1 and 0
    assert (tiled(pair)[1, 1, 0], tiled(pair)[1, 3, 0]) == (255, 0)


def test_equal_weights_are_a_picture_too() -> None:
    image = Image.open(BytesIO(png(np.ones((3, 1, 4, 4), np.float32))))
    assert image.mode == "L" and min(image.size) > 100
