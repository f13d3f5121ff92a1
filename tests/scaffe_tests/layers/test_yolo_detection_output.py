"""YoloDetectionOutput against loops over pixels and boxes."""

import numpy as np
import pytest
from gradient_check import OneLayer, distinct

from scaffe.errors import NetError, ShapeError

BIASES = [(1.5, 2.0), (3.0, 1.0)]
FIELDS = "num_classes: 3 num_box: 2 " + " ".join(f"biases: {w} biases: {h}" for w, h in BIASES)


def text(least, limit, fields=FIELDS):
    return (
        f'type: "YoloDetectionOutput" yolo_detection_output_param {{ {fields} confidence_threshold: {least} '
        f"nms_threshold: {limit} }}"
    )


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def overlap(a, b):
    width, height = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    meet = max(0, width) * max(0, height)
    return meet / (sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)) - meet)


def detected(x, image, least, limit):
    """Return the rows of an image (2 boxes of 8 values x H x W)."""
    height, width = x.shape[1:]
    found = []
    for box, i, j in np.ndindex(2, height, width):
        v = x[8 * box : 8 * box + 8, i, j]
        cx, cy = (j + sigmoid(v[0])) / width, (i + sigmoid(v[1])) / height
        w, h = np.exp(v[2]) * BIASES[box][0] / width, np.exp(v[3]) * BIASES[box][1] / height
        chances = np.exp(v[5:]) / np.exp(v[5:]).sum()
        score = sigmoid(v[4]) * chances.max()
        if score >= least:
            found.append([image, chances.argmax() + 1, score, cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
    kept = []
    for row in sorted(found, key=lambda row: -row[2]):
        if all(overlap(row[3:], other[3:]) < limit for other in kept):
            kept.append(row)
    return kept


@pytest.mark.parametrize(("least", "limit"), [(0, 0.3), (0.2, 0.45), (0.5, 1)])
def test_boxes_are_those_of_the_loop(least, limit):
    x = 6 * distinct(2, 16, 3, 4)
    (y,) = OneLayer(text(least, limit), x).forward()
    expected = [row for n in range(2) for row in detected(x[n], n, least, limit)]
    assert len(expected) < 48 and y.shape == (1, 1, len(expected), 7)
    np.testing.assert_allclose(y[0, 0], expected, rtol=1e-5, atol=1e-7)


def test_two_scales_are_one_list():
    fine, coarse = 6 * distinct(1, 16, 4, 4), 6 * distinct(1, 16, 2, 2, seed=1)
    (y,) = OneLayer(text(0.1, 0.45), fine, coarse).forward()
    both = [*detected(fine[0], 0, 0.1, 2), *detected(coarse[0], 0, 0.1, 2)]
    kept = []
    for row in sorted(both, key=lambda row: -row[2]):
        if all(overlap(row[3:], other[3:]) < 0.45 for other in kept):
            kept.append(row)
    np.testing.assert_allclose(y[0, 0], kept, rtol=1e-5, atol=1e-7)


def test_without_detections_each_image_has_a_row():
    (y,) = OneLayer(text(1.5, 0.5), distinct(2, 16, 1, 1)).forward()
    np.testing.assert_array_equal(y[0, 0], [[0, *[-1] * 6], [1, *[-1] * 6]])


def test_wrong_fields_are_refused():
    with pytest.raises(NetError, match="layer 'it'.*3 biases for num_box 2"):
        OneLayer(text(0, 0.5, "num_box: 2 num_classes: 3 biases: 1 biases: 1 biases: 1"), distinct(1, 16, 1, 1))
    with pytest.raises(ShapeError, match="layer 'it'.*2 boxes of 8 values need N x 16 x H x W"):
        OneLayer(text(0, 0.5), distinct(1, 17, 1, 1))


def test_a_box_that_overlaps_by_the_threshold_goes():
    """Two boxes at the same centre, whose sides 1 x 2 and 2 x 2 overlap by exactly a half."""
    fields = "num_classes: 1 num_box: 2 biases: 1 biases: 2 biases: 2 biases: 2"
    (y,) = OneLayer(text(0, 0.5, fields), np.zeros((1, 12, 1, 1))).forward()
    assert y.shape == (1, 1, 1, 7)
    (y,) = OneLayer(text(0, 0.51, fields), np.zeros((1, 12, 1, 1))).forward()
    assert y.shape == (1, 1, 2, 7)


def test_bottoms_of_different_batches_are_refused():
    with pytest.raises(ShapeError, match="layer 'it'.*bottoms have 2 and 1 images"):
        OneLayer(text(0, 0.5), distinct(2, 16, 1, 1), distinct(1, 16, 2, 2))
