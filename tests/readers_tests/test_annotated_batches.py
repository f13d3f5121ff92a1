"""Batches of annotated pictures: what ranks read together is what one reads, and a mirror takes the boxes along."""

import numpy as np
import pytest
from boxed_pictures import make

from readers import RecordError, Shard, Transform
from readers.annotated import Annotated, open_annotated
from readers.annotated_batches import MOST, AnnotatedBatches
from readers.box_sampling import BoxChanges, Sampler

CHANGES = BoxChanges([Sampler(scale=(0.6, 1), most=1, trials=20)], (0.5, 2), (100,))


def batches(source, rank=0, size=1, changes=CHANGES, new=(24, 16), **transform):
    shard = Shard.strong(len(source), batch=6, rank=rank, size=size)
    return AnnotatedBatches(source, shard, Transform(seed=3, train=True, **transform), changes, new)


@pytest.fixture
def source(tmp_path):
    make(tmp_path, 9)
    return open_annotated(str(tmp_path / "list.txt"), str(tmp_path / "labels.prototxt"))


def filled(reader, number):
    (batch,) = reader.allocate(1)
    reader.fill(number, batch)
    return batch


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_read_the_rows_of_one(source, size):
    for number in (0, 3):
        whole = filled(batches(source, mirror=True), number)
        parts = [filled(batches(source, rank, size, mirror=True), number) for rank in range(size)]
        np.testing.assert_array_equal(np.concatenate([part.data for part in parts]), whole.data)
        np.testing.assert_array_equal(np.concatenate([part.label for part in parts])[:, :, 1:], whole.label[:, :, 1:])
    assert whole.data.shape == (6, 3, 24, 16) and whole.label.shape == (6, MOST, 8)


def test_rows_name_their_pictures_and_the_rest_is_minus_1(source):
    batch = filled(batches(source), 0)
    for row, boxes in enumerate(batch.label):
        there = boxes[:, 0] >= 0
        assert (boxes[there, 0] == row).all() and (boxes[~there] == -1).all()


def test_a_mirror_takes_the_boxes_along(source):
    plain = filled(batches(source, changes=BoxChanges()), 0)
    turned = filled(batches(source, changes=BoxChanges(), mirror=True), 0)
    flips = [not np.array_equal(a, b) for a, b in zip(plain.data, turned.data, strict=True)]
    assert {*flips} == {True, False}
    for flip, a, b, boxes, moved in zip(flips, plain.data, turned.data, plain.label, turned.label, strict=True):
        np.testing.assert_array_equal(a[:, :, ::-1] if flip else a, b)
        there = boxes[:, 0] >= 0
        expected = 1 - boxes[there][:, [5, 3]] if flip else boxes[there][:, [3, 5]]
        np.testing.assert_allclose(moved[there][:, [3, 5]], expected, atol=1e-6)


class Odd:
    """A source of pictures of different sizes, or of too many boxes."""

    def __init__(self, boxes=0):
        self.boxes = boxes

    def __len__(self):
        return 6

    def read(self, indices):
        return [(index, index) for index in indices]

    def decode(self, value):
        boxes = np.tile([1, 0, 0, 0, 1, 1, 0], (self.boxes, 1)).astype(np.float32)
        return Annotated(np.zeros((3, 8 if self.boxes else 8 + value, 8), np.uint8), boxes)

    def describe(self, key):
        return f"odd {key}"


def test_other_sizes_and_too_many_boxes_are_refused():
    with pytest.raises(RecordError, match="odd 1 is 3 x 9 x 8, but the first one is 3 x 8 x 8; give resize_param"):
        filled(batches(Odd(), changes=BoxChanges(), new=None), 0)
    with pytest.raises(RecordError, match=f"odd 0 has {MOST + 1} boxes; at most {MOST} are read"):
        filled(batches(Odd(MOST + 1), changes=BoxChanges()), 0)
