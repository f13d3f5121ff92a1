"""scaffe convert-imageset: which records its flags make of a list of images; `readers` has the tests of the rest."""

from __future__ import annotations

import threading

import lmdb
import numpy as np
import pytest
from PIL import Image

from readers import decode
from scaffe.cli import main

COUNT = 6


@pytest.fixture
def images(tmp_path, monkeypatch):
    """Images as Caffe stores them (B x H x W first), of files that ./list names with labels 10, 11, ..."""
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 6, 5, 3), np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(f"{number}.png")
    (tmp_path / "list").write_text("".join(f"{number}.png {number + 10}\n" for number in range(COUNT)))
    return pixels[..., ::-1].transpose(0, 3, 1, 2)


def stored(db="db"):
    """Return the (key, image, label) of each record, by py-lmdb alone."""
    with lmdb.open(str(db), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return [(key, *decode(value)) for key, value in transaction.cursor()]


def convert(*flags):
    return main(["convert-imageset", ".", "list", "db", *flags])


def test_each_line_of_the_list_becomes_a_record(images, capsys):
    assert convert() == 0
    assert "Processed 6 files." in capsys.readouterr().err
    for number, (key, image, label) in enumerate(stored()):
        assert (key, label) == (b"%08d_%d.png" % (number, number), number + 10)
        np.testing.assert_array_equal(image, images[number])


def test_encoded_images_have_the_same_pixels(images):
    assert convert("--encode-type", "png") == 0
    np.testing.assert_array_equal([image for _, image, _ in stored()], images)


def test_flags_choose_channels_size_and_order(images):
    assert convert("-gray=true", "--resize-height", "4", "--resize-width", "3", "--shuffle", "--seed", "1") == 0
    found = stored()
    assert {image.shape for _, image, _ in found} == {(1, 4, 3)}
    labels = [label for _, _, label in found]
    assert labels != sorted(labels) == list(range(10, 10 + COUNT))


def test_shards_hold_the_records_in_turn(images, tmp_path):
    assert convert("--shards", "2") == 0
    first, second = (stored(folder) for folder in sorted((tmp_path / "db").iterdir()))
    assert [label for _, _, label in first] == [10, 12, 14] and [label for _, _, label in second] == [11, 13, 15]


def test_a_bad_image_is_left_out_and_logged_or_ends_it(images, tmp_path, capsys):
    (tmp_path / "2.png").write_bytes(b"no image")
    assert convert("--bad-records", "fail") == 2
    assert "2.png can't be decoded" in capsys.readouterr().err
    assert convert() == 0
    assert "2.png can't be decoded" in capsys.readouterr().err
    assert [label for _, _, label in stored()] == [10, 11, 13, 14, 15]


def test_a_process_that_may_start_no_thread_says_so_in_a_line(images, capsys):
    usual = threading.stack_size(1 << 46)  # more than any address space has
    try:
        assert convert() == 2
    finally:
        threading.stack_size(usual)
    assert capsys.readouterr().err.startswith("scaffe: this process can start no more threads: its limit of processes")
