"""Records that are made up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from readers import SourceError, SyntheticReader, open_database


def images(source: str, indices) -> list[tuple[bytes, int]]:
    reader = SyntheticReader(source)
    decoded = [reader.decode(value) for _, value in reader.read(indices)]
    return [(image.tobytes(), label) for image, label in decoded]


def test_a_record_depends_on_seed_and_index_alone():
    whole = images("synthetic:1000x3x4x5:7:1", range(1000))
    assert images("synthetic:1000x3x4x5:7:1", [999, 0, 77]) == [whole[999], whole[0], whole[77]]
    assert images("synthetic:1000000x3x4x5:7:1", range(1000)) == whole
    assert images("synthetic:1000x3x4x5:7:2", range(1000)) != whole


def test_images_and_labels_are_those_asked_for():
    reader = open_database("synthetic:5000x3x4x6:7")
    decoded = [reader.decode(value) for _, value in reader.read(range(len(reader)))]
    assert {(image.shape, image.dtype) for image, _ in decoded} == {((3, 4, 6), np.dtype(np.uint8))}
    labels = Counter(label for _, label in decoded)
    assert sorted(labels) == list(range(7))
    assert min(labels.values()) > 5000 / 7 * 0.8
    assert len({image.tobytes() for image, _ in decoded}) > 4500
    values = np.array([image for image, _ in decoded])
    assert abs(values.mean() - 127.5) < 2


def test_an_image_has_one_label():
    labels: dict[bytes, set[int]] = {}
    for image, label in images("synthetic:20000x3x8x8", range(20000)):
        labels.setdefault(image, set()).add(label)
    assert {len(found) for found in labels.values()} == {1}


@pytest.mark.parametrize(
    "text", ["10x3x4", "10x3x4x5:", "ax3x4x5", "0x3x4x5", "10x3x0x5", "10x3x4x5:0", "10x3x4x5:1:s"]
)
def test_another_text_is_refused(text):
    with pytest.raises(SourceError, match=f"synthetic:{text}: expected"):
        open_database(f"synthetic:{text}")


def test_an_index_outside_is_an_error():
    with pytest.raises(IndexError, match="synthetic:9x1x1x1: record 9 of 9"):
        SyntheticReader("synthetic:9x1x1x1").read([9])
