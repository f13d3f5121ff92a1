"""scaffe convert-mnist: idx files become records."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from readers import LevelDBReader, LMDBReader, decode
from scaffe.cli import main


def test_each_image_becomes_a_record_with_its_label(tmp_path, capsys):
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)
    (tmp_path / "images").write_bytes(struct.pack(">IIII", 0x803, *images.shape) + images.tobytes())
    (tmp_path / "labels").write_bytes(struct.pack(">II", 0x801, 5) + bytes([3, 1, 4, 1, 5]))
    for command, db in (("convert-mnist", tmp_path / "a"), ("convert_mnist_data", tmp_path / "b")):
        assert main([command, *(str(tmp_path / name) for name in ("images", "labels")), str(db)]) == 0
        assert "Processed 5 files." in capsys.readouterr().err
        with LMDBReader(db) as reader:
            records = [decode(value) for _, value in reader.read(range(len(reader)))]
        np.testing.assert_array_equal([image for image, _ in records], images[:, None])
        assert [label for _, label in records] == [3, 1, 4, 1, 5]


def test_pairs_go_into_the_kind_of_database_that_is_asked_for(tmp_path):
    pytest.importorskip("plyvel", reason="plyvel is not installed")
    (tmp_path / "images").write_bytes(struct.pack(">IIII", 0x803, 5, 4, 3) + bytes(range(60)))
    (tmp_path / "labels").write_bytes(struct.pack(">II", 0x801, 5) + bytes([3, 1, 1, 1, 1]))
    words = [str(tmp_path / name) for name in ("images", "labels")]
    assert main(["convert-mnist", *words, str(tmp_path / "a"), "--siamese", "--seed", "2"]) == 0
    assert main(["convert-mnist", "-siamese", "-seed=2", "-backend=leveldb", *words, str(tmp_path / "b")]) == 0
    with LMDBReader(tmp_path / "a") as one, LevelDBReader(tmp_path / "b") as other:
        records = one.read(range(len(one)))
        assert other.read(range(len(other))) == records
    images = [decode(value)[0] for _, value in records]
    assert [image.shape for image in images] == [(2, 4, 3)] * 5
    rows = {bytes(range(12 * n, 12 * n + 12)): label for n, label in enumerate([3, 1, 1, 1, 1])}
    labels = [rows[image[0].tobytes()] == rows[image[1].tobytes()] for image in images]
    assert [decode(value)[1] for _, value in records] == labels


def test_a_file_that_is_missing_is_named(tmp_path, capsys):
    assert main(["convert-mnist", str(tmp_path / "images"), "labels", str(tmp_path / "db")]) == 2
    assert f"{tmp_path}/images: no such file" in capsys.readouterr().err
    assert not (tmp_path / "db").exists()
