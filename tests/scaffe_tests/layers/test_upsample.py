"""Upsample of SegNet and of YOLO against numpy and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError


def text(fields=""):
    return f'type: "Upsample" upsample_param {{ {fields} }}'


def maxima(x):
    """Return the maxima of squares of 2 x 2 pixels and their places, by a Pooling layer."""
    it = OneLayer('type: "Pooling" pooling_param { kernel_size: 2 stride: 2 }', x, tops=2)
    return it.forward()


@pytest.mark.parametrize(
    ("size", "fields"),
    [((4, 6), "scale: 2"), ((4, 6), ""), ((4, 6), "upsample_h: 4 upsample_w: 6"), ((4, 6), "scale_h: 2 scale_w: 2"),
     ((3, 5), "scale: 2 pad_out_h: true pad_out_w: true"), ((3, 5), "upsample_h: 3 upsample_w: 5")],
)  # fmt: skip
def test_values_return_to_the_places_of_the_maxima(size, fields):
    x = distinct(2, 3, *size)
    values, places = maxima(x)
    (y,) = OneLayer(text(fields), values, places).forward()
    kept = np.isin(x, values)
    np.testing.assert_array_equal(y, np.where(kept, x, 0))
    check_gradients(text(fields), values, places, smooth=[0])


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_pixels_are_repeated(scale):
    x = distinct(2, 3, 2, 4)
    (y,) = OneLayer(text(f"scale: {scale}"), x).forward()
    np.testing.assert_array_equal(y, x.repeat(scale, 2).repeat(scale, 3))
    check_gradients(text(f"scale: {scale}"), distinct(1, 2, 2, 3))


def test_places_outside_of_the_images_are_refused():
    values, places = maxima(distinct(1, 1, 4, 4))
    it = OneLayer(text("upsample_h: 3 upsample_w: 3"), values, places + 6)
    with pytest.raises(NetError, match="layer 'it'.*bottom 1 names pixel .* of images of 3 x 3; give the size of"):
        it.forward()


def test_a_scale_that_forks_set_differently_must_be_given():
    with pytest.raises(NetError, match="layer 'it'.*of one bottom, YOLO's, needs upsample_param { scale: }"):
        OneLayer(text(), distinct(1, 1, 2, 2))
    with pytest.raises(NetError, match="layer 'it'.*pad_out_h takes scale 2, got 3"):
        OneLayer(text("scale: 3 pad_out_h: true"), distinct(1, 1, 2, 2), np.zeros((1, 1, 2, 2)))


def test_places_before_the_first_pixel_are_refused():
    it = OneLayer(text("scale: 2"), np.ones((1, 1, 2, 2)), np.full((1, 1, 2, 2), -1))
    with pytest.raises(NetError, match="layer 'it'.*bottom 1 names pixel -1 of images of 4 x 4"):
        it.forward()


@pytest.mark.parametrize("bottoms", [1, 2])
def test_a_scale_of_0_is_refused(bottoms):
    with pytest.raises(NetError, match="layer 'it'.*has a scale of 0; give 1 or more"):
        OneLayer(text("scale: 0"), *[np.zeros((1, 1, 2, 2))] * bottoms)
