"""CIFAR-10's binary files as LMDBs and a mean image."""

from __future__ import annotations

import lmdb
import numpy as np
import pytest

from readers import SourceError, cifar10, convert_cifar10, decode, read_mean

BATCH = 20  # records in a file, instead of 10,000


@pytest.fixture
def files(tmp_path):
    random = np.random.RandomState(0)
    for name in (*cifar10.TRAIN, *cifar10.TEST):
        records = random.randint(0, 256, (BATCH, cifar10.RECORD), np.uint8)
        records[:, 0] = random.randint(0, 10, BATCH)
        records.tofile(tmp_path / name)
    return tmp_path


def stored(db) -> list[tuple[bytes, bytes]]:
    with lmdb.open(str(db), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


def read(folder, names) -> np.ndarray:
    return np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, cifar10.RECORD) for name in names])


def test_records_are_the_bytes_that_caffes_tool_writes(files):
    train, test, _ = convert_cifar10(files, files / "out")
    for db, names in ((train, cifar10.TRAIN), (test, cifar10.TEST)):
        header = b"\x08\x03\x10\x20\x18\x20\x22\x80\x18"  # shape, and the tag and length of the pixels
        expected = [
            (b"%05d" % n, header + record[1:].tobytes() + b"\x28" + bytes([record[0]]))
            for n, record in enumerate(read(files, names))
        ]
        assert stored(db) == expected
        image, label = decode(expected[7][1])
        assert (image.shape, label) == ((3, 32, 32), read(files, names)[7, 0])


def test_the_mean_is_that_of_the_training_images(files):
    *_, mean = convert_cifar10(files, files / "out")
    expected = read(files, cifar10.TRAIN)[:, 1:].astype(float).mean(0).reshape(3, 32, 32)
    np.testing.assert_allclose(read_mean(mean), expected, rtol=1e-7)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "data_batch_4.bin: no such file or directory; expected CIFAR-10's binary version"),
        (bytes(cifar10.RECORD * 2 - 1), "data_batch_4.bin: expected records of 3073 bytes, got 6145 bytes"),
        (b"", "data_batch_4.bin: expected records of 3073 bytes, got 0 bytes"),
        (b"\x0a" * cifar10.RECORD, "data_batch_4.bin: expected labels of 0 to 9, got 10"),
    ],
)
def test_a_file_that_does_not_fit_is_named_and_nothing_is_made(files, content, said):
    (files / "data_batch_4.bin").unlink()
    if content is not None:
        (files / "data_batch_4.bin").write_bytes(content)
    with pytest.raises(SourceError, match=said):
        convert_cifar10(files, files / "out")
    assert not (files / "out").exists()
