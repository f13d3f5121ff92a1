"""Batches for a device: in memory of its choice, images as they were read, or as the host makes them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from readers import (
    BatchReader,
    LMDBReader,
    Shard,
    Shuffle,
    SkippingBatches,
    SyntheticReader,
    Transform,
    encode,
    write_lmdb,
)

CROPPED = {"scale": 0.5, "crop_size": 7, "mirror": True, "mean_values": (9.0, 8.5, 3.25), "train": True, "seed": 3}
COUNT, SHAPE = 23, (3, 8, 9)


class Pinned:
    """Memory that holds rubbish, and remembers what it gave."""

    def __init__(self, transforms=True):
        self.transforms, self.given = transforms, []

    def pinned(self, nbytes):
        self.given.append(np.full(nbytes, 0x5B, np.uint8))
        return self.given[-1]

    def holds(self, array):
        return any(np.shares_memory(array, one) for one in self.given)


def image(number, shape=SHAPE):
    return np.random.RandomState(number).randint(0, 256, shape, np.uint8)


def file_of(number, kind, shape=SHAPE):
    file = io.BytesIO()
    Image.fromarray(image(number, shape).transpose(1, 2, 0)).save(file, kind)
    return file.getvalue()


KINDS = {
    "bytes": lambda number: image(number),
    "floats": lambda number: image(number).astype(np.float32) / 3,
    "png": lambda number: file_of(number, "PNG"),
    "jpeg": lambda number: file_of(number, "JPEG"),
}


@pytest.fixture
def make(tmp_path):
    """Build a database of such records, some of them `other`, and return its reader."""

    def build(record, other=None):
        values = {number: encode(record(number), number % 10) for number in range(COUNT)} | (other or {})
        write_lmdb(tmp_path / "db", [(b"%08d" % number, value) for number, value in values.items()])
        return LMDBReader(tmp_path / "db")

    return build


def on_host(batch):
    """Return what a batch's images become: what the device's kernel is to make of raw ones."""
    if not batch.is_raw:
        return batch.data.copy()
    images, (tops, lefts, flips), transform = batch.raw.images, batch.raw.places.T, batch.raw.transform
    out = np.empty((len(images), *transform.output_shape(images.shape[1:])), np.float32)
    for row, one, top, left, flip in zip(out, images, tops, lefts, flips, strict=True):
        window = np.s_[:, top : top + out.shape[2], left : left + out.shape[3]]
        row[...] = one[window].astype(np.float32) - (0 if transform.mean is None else transform.mean[window])
        row -= np.array(transform.mean_values or (0,), np.float32)[:, None, None]
        row *= np.float32(transform.scale)
        row[...] = row[:, :, ::-1].copy() if flip else row
    return out


def filled(reader, transform, memory, number, order=None):
    shard = Shard(COUNT, 10, 0, 10, order=order)
    batches = BatchReader(reader, shard, Transform(**transform))
    [batch] = batches.allocate(1, memory)
    batches.fill(number, batch)
    return batch


@pytest.mark.parametrize("kind", ["bytes", "png", "jpeg", "floats"])
@pytest.mark.parametrize("order", [None, Shuffle(5, COUNT)], ids=["in order", "shuffled"])
def test_raw_images_and_their_places_say_what_the_host_makes_of_them(make, kind, order):
    reader = make(KINDS[kind])
    transform = {} if kind == "floats" else CROPPED  # a crop of floats is fewer bytes than they are
    for number in range(5):
        memory = Pinned()
        raw, plain = (filled(reader, transform, given, number, order) for given in (memory, None))
        assert raw.is_raw and not plain.is_raw
        assert memory.holds(raw.raw.images) and memory.holds(raw.raw.places) and memory.holds(raw.label)
        np.testing.assert_array_equal(on_host(raw), plain.data)
        np.testing.assert_array_equal(raw.label, plain.label)
        assert raw.keys == plain.keys


def test_a_mean_image_is_cut_with_the_images(make):
    mean = np.random.RandomState(1).normal(90, 20, SHAPE).astype(np.float32)
    transform = {**CROPPED, "mean_values": (), "mean": mean}
    reader = make(KINDS["bytes"])
    raw, plain = (filled(reader, transform, memory, 1) for memory in (Pinned(), None))
    assert raw.is_raw
    np.testing.assert_array_equal(on_host(raw), plain.data)


def test_synthetic_images_are_left_to_the_device():
    source = SyntheticReader(f"synthetic:{COUNT}x3x8x9")
    raw, plain = (filled(source, CROPPED, memory, 1) for memory in (Pinned(), None))
    assert raw.is_raw
    np.testing.assert_array_equal(on_host(raw), plain.data)


def test_small_crops_are_made_on_the_host_as_they_are_less_to_copy(make):
    memory = Pinned()
    batch = filled(make(KINDS["bytes"]), {**CROPPED, "crop_size": 4}, memory, 0)
    assert batch.raw is None and not batch.is_raw
    assert memory.holds(batch.data) and memory.holds(batch.label)


def test_a_batch_with_an_image_of_another_size_is_made_on_the_host(make):
    reader = make(KINDS["png"], {13: encode(file_of(13, "PNG", (3, 11, 10)), 3)})
    shard = Shard.whole(COUNT, 10)
    batches = BatchReader(reader, shard, Transform(**CROPPED))
    [batch], [plain] = batches.allocate(1, Pinned()), batches.allocate(1)
    for number, is_raw in enumerate([True, False, True, False]):  # record 13 is in batches 1 and 3
        batches.fill(number, batch)
        batches.fill(number, plain)
        assert batch.is_raw == is_raw
        np.testing.assert_array_equal(on_host(batch), plain.data)
        np.testing.assert_array_equal(batch.label, plain.label)


def test_a_batch_of_one_takes_images_of_any_size(make):
    reader = make(KINDS["png"], {1: encode(file_of(1, "PNG", (3, 11, 10)), 3)})
    batches = BatchReader(reader, Shard.whole(COUNT, 1), Transform(scale=0.5))
    [batch], [plain] = batches.allocate(1, Pinned()), batches.allocate(1)
    for number in range(3):
        batches.fill(number, batch)
        batches.fill(number, plain)
        np.testing.assert_array_equal(on_host(batch), plain.data)


def test_bad_records_are_passed_over_and_their_batches_stay_raw(make):
    bad = {4: b"\xff\xff", 13: encode(image(13, (3, 20, 9)), 3)}  # the second one is of another size
    reader = make(KINDS["bytes"], bad)

    def batches():
        return SkippingBatches(BatchReader(reader, Shard.whole(COUNT, 10), Transform(scale=0.5)), 0.5)

    skipping, host = batches(), batches()
    [batch], [plain] = skipping.allocate(1, Pinned()), host.allocate(1)
    for number in range(4):
        skipping.fill(number, batch)
        host.fill(number, plain)
        assert batch.is_raw and batch.bad == plain.bad
        np.testing.assert_array_equal(on_host(batch), plain.data)
        np.testing.assert_array_equal(batch.label, plain.label)


def test_a_device_that_does_not_transform_gets_finished_images(make):
    memory = Pinned(transforms=False)
    reader = make(KINDS["bytes"])
    batch, plain = (filled(reader, CROPPED, given, 1) for given in (memory, None))
    assert batch.raw is None and memory.holds(batch.data)
    np.testing.assert_array_equal(batch.data, plain.data)
