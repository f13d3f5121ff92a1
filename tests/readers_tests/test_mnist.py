"""MNIST's idx files as LMDBs: what is stored, and what is said of files that are none."""

from __future__ import annotations

import gzip
import struct

import lmdb
import numpy as np
import pytest

from readers import LevelDBReader, SourceError, convert_mnist, decode

IMAGES = np.random.RandomState(0).randint(0, 256, (12, 4, 3), np.uint8)
LABELS = np.arange(12, dtype=np.uint8) % 10


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def files(tmp_path):
    (tmp_path / "images").write_bytes(idx(IMAGES))
    (tmp_path / "labels").write_bytes(idx(LABELS))
    return tmp_path


def stored(db) -> list[tuple[bytes, bytes]]:
    with lmdb.open(str(db), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


def test_records_are_the_bytes_that_caffes_tool_writes(files):
    assert convert_mnist(files / "images", files / "labels", files / "db") == 12
    # Fields 1 to 3 are the shape, 4 the pixels, 5 the label; Caffe's tool does not set 7, whether it is encoded.
    expected = [
        (b"%08d" % n, b"\x08\x01\x10\x04\x18\x03\x22\x0c" + image.tobytes() + b"\x28" + bytes([label]))
        for n, (image, label) in enumerate(zip(IMAGES, LABELS.tolist(), strict=True))
    ]
    assert stored(files / "db") == expected
    np.testing.assert_array_equal(decode(expected[3][1])[0][0], IMAGES[3])


def test_siamese_records_are_pairs_with_the_bytes_that_caffes_tool_writes(files):
    assert convert_mnist(files / "images", files / "labels", files / "db", siamese=True, seed=3) == 12
    # The pixels of two images, in field 4; channels, field 1, are 2, and the label, field 5, is 1 for one digit twice.
    pairs = np.random.RandomState(3).randint(0, 12, (12, 2)).tolist()
    head = b"\x08\x02\x10\x04\x18\x03\x22\x18"
    expected = [
        (b"%08d" % n, head + IMAGES[i].tobytes() + IMAGES[j].tobytes() + b"\x28" + bytes([int(LABELS[i] == LABELS[j])]))
        for n, (i, j) in enumerate(pairs)
    ]
    assert stored(files / "db") == expected
    assert {LABELS[i] == LABELS[j] for i, j in pairs} == {True, False}
    for name, seed in (("again", 3), ("other", 4)):
        convert_mnist(files / "images", files / "labels", files / name, siamese=True, seed=seed)
    assert stored(files / "again") == expected != stored(files / "other")


@pytest.mark.parametrize("siamese", [False, True])
def test_a_leveldb_has_the_records_of_the_lmdb(files, siamese):
    pytest.importorskip("plyvel", reason="plyvel is not installed")
    for backend in ("lmdb", "leveldb"):
        convert_mnist(files / "images", files / "labels", files / backend, backend, siamese)
    with LevelDBReader(files / "leveldb") as reader:
        assert reader.read(range(len(reader))) == stored(files / "lmdb")


def test_gzipped_files_are_read(files):
    for name in ("images", "labels"):
        (files / f"{name}.gz").write_bytes(gzip.compress((files / name).read_bytes()))
    convert_mnist(files / "images.gz", files / "labels.gz", files / "zipped")
    convert_mnist(files / "images", files / "labels", files / "plain")
    assert stored(files / "zipped") == stored(files / "plain")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("images", idx(IMAGES)[:-1], "images: expected 144 bytes for 12 x 4 x 3, got 143"),
        ("images", gzip.compress(idx(IMAGES))[:-20], "images: "),
        ("images", idx(LABELS), "images: expected an idx file of bytes with 3 axes, which begins 00 00 08 03"),
        ("labels", b"", "labels: expected an idx file of bytes with 1 axes"),
        ("labels", idx(LABELS[:5]), "labels: expected a label for each of 12 images, got 5"),
        ("labels", b"\x00\x00\x0d\x01" + idx(LABELS)[4:], "labels: expected an idx file of bytes"),
        ("labels", None, "labels: no such file"),
    ],
)
def test_files_that_do_not_fit_are_named_and_nothing_is_left(files, name, content, said):
    (files / name).unlink()
    if content is not None:
        (files / name).write_bytes(content)
    with pytest.raises(SourceError, match=said):
        convert_mnist(files / "images", files / "labels", files / "db")
    assert not list(files.glob("db*"))
