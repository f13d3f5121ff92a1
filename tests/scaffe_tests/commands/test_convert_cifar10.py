"""scaffe convert-cifar10: the binary files become two databases and a mean image."""

from __future__ import annotations

import numpy as np
import pytest

from readers import LevelDBReader, LMDBReader, cifar10, read_mean
from scaffe.cli import main


def test_two_databases_and_the_mean_of_the_first_are_written_and_named(tmp_path, capsys):
    pixels = {}
    for name in (*cifar10.TRAIN, *cifar10.TEST):
        records = np.random.default_rng(len(pixels)).integers(0, 10, (4, 1 + 3 * 32 * 32), np.uint8)
        records.tofile(tmp_path / name)
        pixels[name] = records[:, 1:]
    assert main(["convert-cifar10", str(tmp_path), str(tmp_path / "out")]) == 0
    train, test, mean = (
        tmp_path / "out" / name for name in ("cifar10_train_lmdb", "cifar10_test_lmdb", "mean.binaryproto")
    )
    assert f"Wrote {train}, {test}, {mean}" in capsys.readouterr().err
    for db, names in ((train, cifar10.TRAIN), (test, cifar10.TEST)):
        with LMDBReader(db) as reader:
            assert len(reader) == 4 * len(names)
    expected = np.concatenate([pixels[name] for name in cifar10.TRAIN]).mean(0, dtype=float).reshape(3, 32, 32)
    np.testing.assert_allclose(read_mean(mean), expected, rtol=1e-6)


@pytest.mark.parametrize("words", [["leveldb"], ["--backend", "leveldb"]])
def test_leveldbs_are_named_after_their_kind_and_not_replaced(tmp_path, words, capsys):
    pytest.importorskip("plyvel", reason="plyvel is not installed")
    for name in (*cifar10.TRAIN, *cifar10.TEST):
        np.zeros((2, 1 + 3 * 32 * 32), np.uint8).tofile(tmp_path / name)
    assert main(["convert-cifar10", str(tmp_path), str(tmp_path / "out"), *words]) == 0
    for part, count in (("train", 10), ("test", 2)):
        with LevelDBReader(tmp_path / "out" / f"cifar10_{part}_leveldb") as reader:
            assert len(reader) == count
    assert main(["convert-cifar10", str(tmp_path), str(tmp_path / "out"), *words]) == 2
    assert f"scaffe: {tmp_path}/out/cifar10_train_leveldb exists already" in capsys.readouterr().err


def test_a_file_that_is_missing_is_named(tmp_path, capsys):
    assert main(["convert_cifar_data", str(tmp_path), str(tmp_path / "out")]) == 2
    assert "data_batch_1.bin: no such file" in capsys.readouterr().err
