"""From a database to batches: Caffe's own tops, the same samples on any number of ranks, bad records named."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
from PIL import Image

from readers import (
    BatchQueue,
    BatchReader,
    LMDBReader,
    RecordError,
    Shard,
    Shuffle,
    Transform,
    encode,
    order,
    read_mean,
    write_lmdb,
)

# What the cases' prototxt files say: source, batch size, transform_param.
CASES = {
    "raw_crop_mean_file": ("train_lmdb", 4, {"mean": "mean.binaryproto", "crop_size": 21, "scale": 0.5}),
    "raw_mean_value_one": ("train_lmdb", 4, {"mean_values": (100.0,)}),
    "encoded_jpg": ("train_encoded_jpg_lmdb", 4, {}),
    "encoded_force_color": ("train_encoded_png_lmdb", 4, {"color": True}),
    "encoded_force_gray": ("train_encoded_png_lmdb", 4, {"color": False}),
    "gray_resized": ("gray_resized_lmdb", 6, {"mean_values": (128.0,)}),
    "resized": ("resized_lmdb", 6, {}),
    "wraparound": ("train_lmdb", 77, {"crop_size": 1}),
    "rand_skip_none_crop1": ("train_lmdb", 3, {"crop_size": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_batches_are_caffes_to_the_bit(cases, case):
    source, batch_size, settings = CASES[case]
    artefacts = cases / "caffe/artefacts"
    if "mean" in settings:
        settings = {**settings, "mean": read_mean(artefacts / settings["mean"])}
    with np.load(cases / f"parity/data_{case}/arrays.npz") as arrays:
        expected = dict(arrays)
    with LMDBReader(artefacts / source) as reader:
        batches = BatchReader(reader, Shard.whole(len(reader), batch_size), Transform(**settings))
        with BatchQueue(batches.fill, itertools.count(), batches.allocate(2)) as queue:
            for number in range(1, len(expected) // 2 + 1):
                batch = queue.get()
                np.testing.assert_array_equal(batch.data, expected[f"data_pass{number}"])
                np.testing.assert_array_equal(batch.label, expected[f"label_pass{number}"])
                queue.recycle(batch)


def image(number: int, shape: tuple[int, int, int] = (3, 8, 8)) -> np.ndarray:
    return np.random.RandomState(number).randint(0, 256, shape, np.uint8)


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image(number).transpose(1, 2, 0)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def make(tmp_path):
    """Build a database of `count` images, some of them `other`, and return its reader."""

    def build(count: int = 23, other: dict[int, bytes] | None = None) -> LMDBReader:
        values = {number: encode(image(number), number % 10) for number in range(count)} | (other or {})
        write_lmdb(tmp_path / "db", [(b"%08d_%d.png" % (number, number), value) for number, value in values.items()])
        return LMDBReader(tmp_path / "db")

    return build


def read(reader: LMDBReader, shard: Shard, transform: Transform, numbers: range):
    """The data, labels and keys of some batches."""
    batches = BatchReader(reader, shard, transform)
    for number in numbers:
        [batch] = batches.allocate(1)
        batches.fill(number, batch)
        yield batch.data, batch.label, batch.keys


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
def test_ranks_together_read_what_one_would_have_read(make, size):
    reader = make()
    transform = Transform(scale=0.5, crop_size=5, mirror=True, mean_values=(9.0,), train=True, seed=3)
    numbers = range(8)  # 80 samples of 23 records: three epochs and the wraps between them
    parts = [read(reader, Shard.strong(23, 10, rank, size), transform, numbers) for rank in range(size)]
    whole = read(reader, Shard.whole(23, 10), transform, numbers)
    for (data, label, keys), *ranks in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(np.concatenate([part[0] for part in ranks]), data)
        np.testing.assert_array_equal(np.concatenate([part[1] for part in ranks]), label)
        assert [key for part in ranks for key in part[2]] == keys


def test_a_resumed_run_sees_the_crops_of_the_one_that_did_not_stop(make):
    reader, transform = make(), Transform(crop_size=5, mirror=True, train=True)
    onward = read(reader, Shard.whole(23, 10), transform, range(5, 9))
    resumed = read(reader, Shard.whole(23, 10, first=50), transform, range(4))
    for (data, label, keys), (again, label_again, keys_again) in zip(onward, resumed, strict=True):
        np.testing.assert_array_equal(data, again)
        np.testing.assert_array_equal(label, label_again)
        assert keys == keys_again


def test_labels_and_keys_are_those_of_the_records(make):
    [(data, label, keys)] = read(make(), Shard.whole(23, 4, first=21), Transform(), range(1))
    assert (data.dtype, label.dtype, label.tolist()) == (np.float32, np.float32, [1, 2, 0, 1])
    assert keys == [b"00000021_21.png", b"00000022_22.png", b"00000000_0.png", b"00000001_1.png"]


@pytest.mark.parametrize("shuffle", ["full", "block:4"])
def test_rows_stand_in_the_order_of_the_epoch_whatever_the_order_of_reading(make, shuffle):
    shard = Shard(23, 50, 0, 50, order=order(shuffle, 3, 23))  # some records stand in it twice or three times
    epochs, records = shard.at(np.arange(50))
    transform = Transform(crop_size=5, mirror=True, train=True)
    [(data, label, keys)] = read(make(), shard, transform, range(1))
    assert keys == [b"%08d_%d.png" % (record, record) for record in records]
    assert label.tolist() == [record % 10 for record in records]
    expected = np.zeros_like(data)
    transform.apply([image(record) for record in records], epochs, records, expected)
    np.testing.assert_array_equal(data, expected)


def refusal(reader: LMDBReader, transform: Transform) -> str:
    """What is said of the first record that is refused."""
    batches = BatchReader(reader, Shard.whole(len(reader), 10), transform)
    with BatchQueue(batches.fill, range(3), batches.allocate(2)) as queue, pytest.raises(RecordError) as raised:
        for _ in range(3):
            queue.recycle(queue.get())
    return str(raised.value)


@pytest.mark.parametrize("shape", [(3, 8, 9), (3, 7, 8), (1, 8, 8)])
def test_a_record_of_another_size_is_named(make, shape):
    reader = make(other={13: encode(image(0, shape), 0)})
    text = refusal(reader, Transform())
    size = " x ".join(map(str, shape))
    assert text.startswith(f"{reader.source}: record '00000013_13.png' is {size}, but the first record is 3 x 8 x 8")


def test_records_of_other_sizes_are_cut_to_one_without_a_mean_image(make):
    other = image(5, (3, 12, 6))
    reader = make(other={13: encode(other, 0)})
    [(data, _, _)] = read(reader, Shard.whole(23, 20), Transform(crop_size=4), range(1))
    np.testing.assert_array_equal(data[13], other[:, 4:8, 1:5])
    assert "but the mean image is 3 x 8 x 8" in refusal(reader, Transform(crop_size=4, mean=np.zeros((3, 8, 8))))


def test_a_record_smaller_than_the_crop_is_named(make):
    text = refusal(make(other={13: encode(image(0, (3, 3, 9)), 0)}), Transform(crop_size=4))
    assert "record '00000013_13.png' is 3 x 3 x 9, smaller than the crop_size of 4" in text


def test_an_image_that_is_damaged_is_named(make):
    other = {number: encode(png(number), 0) for number in range(23)}
    other[17] = encode(png(17)[:60], 0)
    reader = make(other=other)
    assert refusal(reader, Transform()).startswith(
        f"{reader.source}: record '00000017_17.png': can't be decoded as an image"
    )


def test_a_value_that_is_no_datum_is_named(make):
    assert "record '00000002_2.png'" in refusal(make(other={2: b"\xff" * 40}), Transform())


def test_a_first_record_that_does_not_fit_is_named(make):
    reader = make()
    with pytest.raises(RecordError, match=r"record '00000000_0.png' is 3 x 8 x 8, smaller than the crop_size of 9"):
        BatchReader(reader, Shard.whole(23, 4), Transform(crop_size=9))


def test_a_batch_has_the_rows_of_its_rank_and_the_shape_of_the_crop(make):
    batches = BatchReader(make(), Shard.strong(23, 10, 1, 3), Transform(crop_size=5))
    first, second = batches.allocate(2)
    assert (batches.shape, batches.records) == ((3, 5, 5), 23)
    assert (first.data.shape, first.label.shape) == ((3, 3, 5, 5), (3,))
    assert not np.shares_memory(first.data, second.data)


class Endless:
    """A source of so many records that no memory could hold a number for each."""

    def __len__(self) -> int:
        return 10**15

    def read(self, indices):
        return [(index, index) for index in indices]

    def decode(self, value, color=None):
        return image(value % 100), value % 10

    def describe(self, key):
        return str(key)


def test_memory_does_not_depend_on_the_number_of_records():
    source = Endless()
    shard = Shard(len(source), 6, 0, 6, first=10**15 - 3, order=Shuffle(1, 10**15))
    batches = BatchReader(source, shard, Transform(mirror=True, train=True))
    with BatchQueue(batches.fill, itertools.count(), batches.allocate(3), threads=2) as queue:
        keys = queue.get().keys + queue.get().keys
    assert len(set(keys)) == 12 and max(keys) < 10**15


def test_a_batch_of_one_takes_raw_images_of_any_size_over_and_over(make):
    others = {number: encode(image(number, (3, 8 + number, 8)), 0) for number in (1, 2)}
    batches = BatchReader(make(3, others), Shard.whole(3, 1), Transform())
    [batch] = batches.allocate(1)
    for number in range(7):
        batches.fill(number, batch)
        np.testing.assert_array_equal(batch.data[0], image(number % 3, (3, 8 + number % 3, 8)))
