"""Samples, canvases and mirrors: boxes follow their pictures."""

import numpy as np
import pytest

from readers.annotated import Annotated
from readers.box_sampling import BoxChanges, Sampler, area, mirrored

BOXES = np.array([[1, 0, 0.25, 0.25, 0.5, 0.75, 0], [2, 0, 0.75, 0, 1, 0.25, 1]], np.float32)


def picture(boxes=BOXES, height=40, width=80):
    """Return a picture whose boxes have the value of their label, and all else 0."""
    image = np.zeros((1, height, width), np.uint8)
    for label, _, xmin, ymin, xmax, ymax, _ in boxes:
        image[:, round(ymin * height) : round(ymax * height), round(xmin * width) : round(xmax * width)] = label
    return Annotated(image, boxes)


def assert_boxes_fit(record):
    """Fail unless each box has the pixels of its label, up to a pixel at its edges."""
    _, height, width = record.image.shape
    for label, _, xmin, ymin, xmax, ymax, _ in record.boxes:
        rows, columns = np.nonzero(record.image[0] == label)
        found = [columns.min() / width, rows.min() / height, (columns.max() + 1) / width, (rows.max() + 1) / height]
        np.testing.assert_allclose([xmin, ymin, xmax, ymax], found, rtol=0, atol=1.5 / min(height, width))


@pytest.mark.parametrize("seed", range(8))
def test_boxes_follow_samples_and_canvases(seed):
    sampler = Sampler(scale=(0.5, 1), ratio=(0.5, 2), most=1, trials=50)
    changes = BoxChanges([sampler], (0.5, 3), (7,))
    record = changes.apply(picture(), np.random.default_rng(seed))
    assert_boxes_fit(record)
    again = changes.apply(picture(), np.random.default_rng(seed))
    np.testing.assert_array_equal(record.image, again.image)


def test_a_canvas_is_larger_and_has_the_colour():
    record = BoxChanges((), (1, 4), (104, 117, 123)).apply(
        Annotated(np.zeros((3, 20, 20), np.uint8), BOXES), np.random.default_rng(1)
    )
    assert record.image.shape[1] > 20
    assert {tuple(pixel) for pixel in record.image.reshape(3, -1).T} == {(0, 0, 0), (104, 117, 123)}
    np.testing.assert_allclose(
        area(record.boxes[:, 2:6]), area(BOXES[:, 2:6]) * (20 / record.image.shape[1]) ** 2, rtol=0.02
    )


@pytest.mark.parametrize("least", [0.1, 0.5, 0.9])
def test_samples_satisfy_their_constraint(least):
    sampler = Sampler(scale=(0.3, 1), ratio=(0.5, 2), jaccard=(least, None), most=3, trials=3000)
    found = sampler.draw(BOXES, np.random.default_rng(0))
    for part in found:
        corner, end = np.maximum(part[:2], BOXES[:, 2:4]), np.minimum(part[2:], BOXES[:, 4:6])
        meet = np.prod(np.maximum(end - corner, 0), axis=1)
        assert (meet / (area(part) + area(BOXES[:, 2:6]) - meet)).max() >= least
        assert part.min() >= 0 and part.max() <= 1
    assert len(found) == 3 or least == 0.9


def test_a_box_stays_where_its_centre_is_or_enough_of_it():
    part = np.array([0.0, 0.0, 0.3, 1.0])
    assert len(BoxChanges()._kept(BOXES, part)) == 0
    kept = BoxChanges(least_part=0.1)._kept(BOXES, part)
    np.testing.assert_allclose(kept, [[1, 0, 0.25 / 0.3, 0.25, 1, 0.75, 0]], rtol=1e-6)
    assert len(BoxChanges(least_part=0.3)._kept(BOXES, part)) == 0


def test_a_mirror_turns_left_and_right():
    np.testing.assert_allclose(mirrored(BOXES)[:, 2:6], [[0.5, 0.25, 0.75, 0.75], [0, 0, 0.25, 0.25]])
    np.testing.assert_allclose(mirrored(mirrored(BOXES)), BOXES)


def test_the_whole_picture_is_a_sample_of_the_default_sampler():
    record = picture()
    assert BoxChanges([Sampler(most=1, trials=1)]).apply(record, np.random.default_rng(0)) is record
