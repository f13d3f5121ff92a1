"""PriorBox against the loop of SSD's Caffe."""

import math

import numpy as np
import pytest
from gradient_check import OneLayer

from scaffe.errors import NetError

FEATURES, PICTURE = np.zeros((2, 5, 3, 4)), np.zeros((2, 3, 30, 60))


def text(fields):
    return f'type: "PriorBox" prior_box_param {{ {fields} }}'


def boxes_of(sizes, steps=(10, 15), offset=0.5, picture=(30, 60)):
    """Return the corners, box by box, given the boxes' widths and heights."""
    found = []
    for i, j in np.ndindex(3, 4):
        cy, cx = (i + offset) * steps[0], (j + offset) * steps[1]
        for w, h in sizes:
            found += [(cx - w / 2) / picture[1], (cy - h / 2) / picture[0]]
            found += [(cx + w / 2) / picture[1], (cy + h / 2) / picture[0]]
    return found


R2, R3 = math.sqrt(2), math.sqrt(3)
CASES = [
    ("min_size: 12", {"sizes": [(12, 12)]}),
    ("min_size: 12.9 max_size: 27.5", {"sizes": [(12, 12), (18, 18)]}),
    ("min_size: 8 aspect_ratio: 2", {"sizes": [(8, 8), (8 * R2, 8 / R2), (8 / R2, 8 * R2)]}),
    ("min_size: 8 aspect_ratio: 2 aspect_ratio: 0.5", {"sizes": [(8, 8), (8 * R2, 8 / R2), (8 / R2, 8 * R2)]}),
    ("min_size: 8 aspect_ratio: 1 aspect_ratio: 3 flip: false", {"sizes": [(8, 8), (8 * R3, 8 / R3)]}),
    ("min_size: 4 min_size: 6 max_size: 9 max_size: 24 aspect_ratio: 2 flip: false",
     {"sizes": [(4, 4), (6, 6), (4 * R2, 4 / R2), (6, 6), (12, 12), (6 * R2, 6 / R2)]}),
    ("min_size: 4 step: 8 offset: 0", {"sizes": [(4, 4)], "steps": (8, 8), "offset": 0}),
    ("min_size: 4 step_h: 8 step_w: 4", {"sizes": [(4, 4)], "steps": (8, 4)}),
    ("min_size: 4 img_size: 60", {"sizes": [(4, 4)], "steps": (20, 15), "picture": (60, 60)}),
    ("min_size: 4 img_h: 15 img_w: 60", {"sizes": [(4, 4)], "steps": (5, 15), "picture": (15, 60)}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), CASES)
def test_boxes_are_those_of_the_loop(fields, expected):
    (y,) = OneLayer(text(fields), FEATURES, PICTURE).forward()
    expected = boxes_of(**expected)
    assert y.shape == (1, 2, len(expected))
    np.testing.assert_allclose(y[0, 0], expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(y[0, 1], 0.1, rtol=1e-6)


def test_boxes_can_be_clipped_and_variances_are_repeated():
    (y,) = OneLayer(text("min_size: 40 clip: true variance: 0.1 variance: 0.2 variance: 0.3 variance: 0.4"),
                    FEATURES, PICTURE).forward()  # fmt: skip
    np.testing.assert_allclose(y[0, 0], np.clip(boxes_of([(40, 40)]), 0, 1), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(y[0, 1].reshape(-1, 4), [[0.1, 0.2, 0.3, 0.4]] * 12, rtol=1e-6)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("min_size: 4 aspect_ratio: 0", "aspect_ratio 0; give width / height, above 0"),
        ("min_size: 4 aspect_ratio: -2", "aspect_ratio -2"),
        ("aspect_ratio: 2", r"min_size \[\]; give at least one"),
        ("min_size: 0", "min_size .0.0.; give at least one, in pixels, from 1 on"),
        ("min_size: 4 min_size: 0.2", "from 1 on"),
        ("min_size: inf", "from 1 on"),
        ("min_size: 4 max_size: inf", r"max_size \[inf\] is not above"),
        ("min_size: 4 aspect_ratio: inf", "aspect_ratio inf"),
        ("min_size: 4 variance: nan", "give 1 or 4 numbers above 0"),
        ("min_size: 4 max_size: 4", r"max_size \[4.0\] is not above min_size"),
        ("min_size: 4 min_size: 5 max_size: 9", "1 max_size for 2 min_size"),
        ("min_size: 4 variance: 0", "give 1 or 4 numbers above 0"),
        ("min_size: 4 variance: 1 variance: 1", "give 1 or 4 numbers"),
        ("min_size: 4 step: 0", "step 0 x 0; give sizes above 0"),
        ("min_size: 4 img_size: 3 img_h: 4", "img_size and img_h, img_w; give one"),
    ],
)
def test_wrong_fields_are_refused(fields, said):
    with pytest.raises(NetError, match=f"layer 'it'.*{said}"):
        OneLayer(text(fields), FEATURES, PICTURE)


def test_values_of_the_bottoms_do_not_count():
    it = OneLayer(text("min_size: 4"), FEATURES, PICTURE)
    it.forward()
    for diff in it.backward(np.ones((1, 2, 48))):
        np.testing.assert_array_equal(diff, 0)
