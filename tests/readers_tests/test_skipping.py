"""Bad records passed over: which ones, and that the good ones in their place are the same whoever reads."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from readers import (
    BatchReader,
    ImageReader,
    LMDBReader,
    RecordError,
    Shard,
    SkippingBatches,
    Transform,
    encode,
    order,
    write_lmdb,
)
from readers.batch_queue import allocate
from readers.skipping import LEAST, Labels, allowed, first_good

COUNT = 30


class Numbers:
    """Fills batches of one number a row, the record's, and the epoch as label; those in `bad` raise."""

    shapes = [(1,), ()]

    def __init__(self, shard, bad=()):
        self.shard, self._bad = shard, bad

    def allocate(self, count, memory=None):
        return allocate(count, self.shard.rows, self.shapes, memory)

    def describe(self, key):
        return f"record {key}"

    def fill(self, number, batch):
        self.fill_with(*self.shard.places(number), batch)

    def fill_with(self, epochs, indices, batch):
        batch.keys = indices.tolist()
        for record in batch.keys:
            if record in self._bad:
                raise RecordError(f"record {record}: is bad")
        batch.data[:, 0], batch.label[:] = indices, epochs


def pairs(shuffle, seed, count, size, batch, bad, numbers, first=0, fraction=1.0):
    """The (epoch, record) of each sample that ranks together read, and what they said of bad ones."""
    found, said = [], []
    ranks = []
    for rank in range(size):
        part = Shard.strong(count, batch, rank, size, first)
        shard = Shard(count, batch, part.start, part.stop, first, order(shuffle, seed, count))
        ranks.append(SkippingBatches(Numbers(shard, bad), fraction))
    for number in numbers:
        for rank in ranks:
            [one] = rank.allocate(1)
            rank.fill(number, one)
            found += zip(one.label.astype(int).tolist(), one.data[:, 0].astype(int).tolist(), strict=True)
            said += one.bad
    return found, said


def expected(shuffle, seed, count, bad, samples):
    """The same by its definition: each sample takes the next good one in the order."""
    shard = Shard(count, 1, 0, 1, 0, order(shuffle, seed, count))
    found, said = [], []
    for sample in samples:
        while (pair := [int(array[0]) for array in shard.at(np.array([sample]))])[1] in bad:
            said.append(f"record {pair[1]}: is bad")
            sample += 1
        found.append(tuple(pair))
    return found, said


@given(
    st.sampled_from(["none", "full", "block:4"]), st.integers(0, 99), st.integers(2, 30), st.integers(1, 12),
    st.integers(1, 5), st.sets(st.integers(0, 28)), st.integers(0, 40),
)  # fmt: skip
@settings(max_examples=40)
def test_each_bad_record_is_replaced_by_the_next_good_one_of_the_global_order(
    shuffle, seed, count, batch, size, bad, first
):
    bad = {record for record in bad if record < count - 1}
    ours = pairs(shuffle, seed, count, min(size, batch), batch, bad, range(3), first)
    assert ours == expected(shuffle, seed, count, bad, range(first, first + 3 * batch))


def test_a_run_that_stops_and_goes_on_passes_over_the_same_records():
    bad = {3, 4, 11, 29}
    whole = pairs("full", 5, COUNT, 1, 8, bad, range(9))
    before = pairs("full", 5, COUNT, 2, 8, bad, range(4))
    after = pairs("full", 5, COUNT, 3, 8, bad, range(5), first=32)
    assert (before[0] + after[0], before[1] + after[1]) == whole


def test_good_batches_are_filled_once_and_known_bad_records_not_read_again():
    calls = []

    class Counted(Numbers):
        def fill_with(self, epochs, indices, batch):
            calls.append(indices.tolist())
            super().fill_with(epochs, indices, batch)

    batches = SkippingBatches(Counted(Shard.whole(10, 5), {7}), 1.0)
    [batch] = batches.allocate(1)
    batches.fill(0, batch)
    assert calls == [[0, 1, 2, 3, 4]]
    batches.fill(1, batch)
    calls.clear()
    batches.fill(3, batch)
    assert calls == [[5, 6, 8, 8, 9]]
    assert batch.bad == ["record 7: is bad"]


def test_more_bad_records_in_a_row_than_are_allowed_end_the_reading():
    with pytest.raises(RecordError, match="record 8: is bad; it is the last of 9 bad records in a row"):
        pairs("none", 0, 100, 1, 4, set(range(20)), range(1), fraction=8 / LEAST)


def test_a_set_without_a_good_record_ends_the_reading():
    with pytest.raises(RecordError, match="bad records in a row"):
        pairs("full", 0, 7, 1, 3, set(range(7)), range(1), fraction=0.01)


def test_a_record_that_is_bad_only_once_is_an_error():
    class Flickering(Numbers):
        tries = 0

        def fill_with(self, epochs, indices, batch):
            self.tries += 1
            self._bad = {2} if self.tries == 1 else ()
            super().fill_with(epochs, indices, batch)

    batches = SkippingBatches(Flickering(Shard.whole(10, 5)), 1.0)
    with pytest.raises(RecordError, match="record 2: is bad, but could be read when tried again"):
        batches.fill(0, batches.allocate(1)[0])


def test_the_first_bad_record_of_a_run_is_allowed_by_any_fraction_that_allows_one_of_a_thousand():
    assert allowed(0.001, 1) == 1 and allowed(0.0009, 1) == 0 and allowed(0.01, 1) == 10
    assert allowed(0.29, 10000) == 2900 and allowed(0, 10**9) == 0


@pytest.mark.parametrize("label", [-1, 4, 1.5, float("nan")])
def test_a_label_that_no_layer_takes_makes_a_record_bad(label):
    labels = Labels(1, classes=4, ignore=255)
    values = np.array([0, 3, 255, label], np.float32)
    assert labels.accepted(values).tolist() == [True, True, True, False]
    assert labels.refusal(values) == f"label {label:g} is outside the classes 0 to 3"
    assert labels.accepted(values.reshape(2, 2)).tolist() == [True, False]


def test_the_first_good_record_gives_the_shape():
    def make(record):
        if record < 4:
            raise RecordError(f"record {record}: is bad")
        return record

    assert first_good(make, 100, 0.01) == 4
    with pytest.raises(RecordError, match="record 0: is bad"):
        first_good(make, 100, 0.003)


# Files with real faults.


def picture(number: int, side: int = 16) -> np.ndarray:
    smooth = np.linspace(0, 200, side * side * 3).reshape(3, side, side) + number
    return smooth.astype(np.uint8)


def jpeg(number: int, side: int = 16) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(number, side).transpose(1, 2, 0)).save(file, "JPEG")
    return file.getvalue()


def flipped(content: bytes) -> bytes:
    """The JPEG with all bits of its frame header flipped."""
    at = content.index(b"\xff\xc0") + 2
    return content[:at] + bytes(255 - byte for byte in content[at : at + 12]) + content[at + 12 :]


FAULTS = {
    "flipped": lambda: encode(flipped(jpeg(5)), 5),
    "truncated": lambda: encode(jpeg(5)[:200], 5),
    "another shape": lambda: encode(jpeg(5, 12), 5),
    "no image": lambda: encode(b"nothing", 5),
    "label": lambda: encode(jpeg(5), 70),
    "negative label": lambda: encode(jpeg(5), -2),
    "no Datum": lambda: b"\xff" * 9,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("size", [1, 3])
def test_a_faulty_record_of_a_database_gives_way_to_the_next(tmp_path, fault, size):
    values = [encode(jpeg(number), number % 10) for number in range(COUNT)]
    for number in (0, 5):
        values[number] = FAULTS[fault]()
    write_lmdb(tmp_path / "db", [(b"%08d" % number, value) for number, value in enumerate(values)])
    keys, labels, said = [], [], []
    transform = Transform(crop_size=9, train=True, mirror=True) if fault != "another shape" else Transform()
    data = []
    with LMDBReader(tmp_path / "db") as reader:
        for rank in range(size):
            shard = Shard.strong(COUNT, 10, rank, size)
            make = first_good(lambda first, shard=shard: BatchReader(reader, shard, transform, first), COUNT, 0.1)
            if fault in ("another shape", "label", "negative label"):  # the first record decodes, and gives the shape
                make = BatchReader(reader, shard, transform, 1)
            batches = SkippingBatches(make, 0.1, [Labels(1, 10)])
            [batch] = batches.allocate(1)
            batches.fill(0, batch)
            keys += batch.keys
            labels += batch.label.tolist()
            said += batch.bad
            data += list(batch.data)
    assert keys == [b"%08d" % number for number in (1, 1, 2, 3, 4, 6, 6, 7, 8, 9)]
    assert labels == [1, 1, 2, 3, 4, 6, 6, 7, 8, 9]
    assert len(said) == 2 and all("record '0000000" in one for one in said)
    np.testing.assert_array_equal(data[0], data[1])
    np.testing.assert_array_equal(data[5], data[6])


def test_a_missing_image_file_gives_way_to_the_next(tmp_path):
    for number in range(12):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(number))
    (tmp_path / "list").write_text("".join(f"{number}.jpg {number}\n" for number in range(12)))
    (tmp_path / "3.jpg").unlink()
    (tmp_path / "4.jpg").write_bytes(b"")
    reader = ImageReader(tmp_path / "list", str(tmp_path))
    batches = SkippingBatches(BatchReader(reader, Shard.whole(12, 6), Transform()), 0.01)
    [batch] = batches.allocate(1)
    batches.fill(0, batch)
    assert batch.label.tolist() == [0, 1, 2, 5, 5, 5]
    assert ["3.jpg" in one for one in batch.bad] == [True, False, False]
    assert "no such file" in batch.bad[0] and f"{tmp_path}/list:5" in batch.bad[1]
