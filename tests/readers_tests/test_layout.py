"""A batch of raw Datums parsed at once is what protocol buffers make of each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from readers import BatchReader, LMDBReader, Shard, Transform, decode, encode, write_lmdb
from readers.datum_pb2 import Datum
from readers.layout import SMALL, DatumLayout

SHAPE = (3, 4, 5)


def image(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.RandomState(seed).randint(0, 256, shape).astype(np.uint8)


LABELS = st.integers(-(2**31), 2**31 - 1)
SHAPES = st.tuples(*[st.integers(1, 7)] * 3)
OTHERS = {
    "another shape": encode(image(1, (3, 5, 4)), 1),
    "floats": encode(image(1).astype(np.float32), 1),
    "an encoded one": encode(b"no image", 1),
    "float_data after data": encode(image(1), 1) + Datum(float_data=[1.0]).SerializeToString(),
    "a second shape": encode(image(1), 1) + Datum(width=7).SerializeToString(),
    "an encoded end": encode(image(1), 1) + Datum(encoded=True).SerializeToString(),
    "a cut end": encode(image(1), 1)[:-1],
    "cut pixels": encode(image(1), 1)[:20],
    "no Datum": b"\xff" * 80,
    "nothing": b"",
    "label first": Datum(label=1).SerializeToString() + encode(image(1), 2),
}


@given(shape=SHAPES, labels=st.lists(LABELS, min_size=1, max_size=9), encoded=st.booleans())
def test_images_and_labels_are_those_of_protocol_buffers(shape, labels, encoded):
    values = [encode(image(seed, shape), label) for seed, label in enumerate(labels)]
    if not encoded:  # as convert_mnist_data and convert_cifar_data write it: without the field
        values = [value.removesuffix(b"\x38\x00") for value in values]
    layout = DatumLayout.of(values[0])
    assert layout is not None and layout.labels(values) == labels
    np.testing.assert_array_equal(layout.images(values), [decode(value)[0] for value in values])


def test_a_record_without_a_label_has_the_label_0():
    value = Datum(channels=3, height=4, width=5, data=image(1).tobytes()).SerializeToString()
    layout = DatumLayout.of(value)
    assert layout is not None and layout.labels([value]) == [decode(value)[1]] == [0]


def test_large_images_are_not_copied():
    value = encode(image(1, (1, 1, SMALL + 1)), 3)
    layout = DatumLayout.of(value)
    assert layout is not None
    [one] = layout.images([value])
    assert not one.flags.owndata
    np.testing.assert_array_equal(one, decode(value)[0])


def test_what_has_another_layout_is_left_to_protocol_buffers():
    raw = encode(image(0), 5)
    layout = DatumLayout.of(raw)
    assert layout is not None
    for name, value in OTHERS.items():
        assert layout.labels([raw, value]) is None, name
        assert DatumLayout.of(value) is None or name == "another shape", name


def test_a_batch_of_both_kinds_is_read_whole(tmp_path):
    """Half of the records have their label first, which protocol buffers allow and no writer of Caffe's does."""
    values = [encode(image(seed), seed) for seed in range(10)]
    mixed = [Datum(label=9).SerializeToString() + value if seed % 2 else value for seed, value in enumerate(values)]
    write_lmdb(tmp_path / "db", [(b"%02d" % seed, value) for seed, value in enumerate(mixed)])
    with LMDBReader(tmp_path / "db") as reader:
        batches = BatchReader(reader, Shard.whole(10, 10), Transform(scale=0.5))
        [batch] = batches.allocate(1)
        batches.fill(0, batch)
    np.testing.assert_array_equal(batch.label, np.arange(10))
    np.testing.assert_array_equal(batch.data, [image(seed) * np.float32(0.5) for seed in range(10)])
