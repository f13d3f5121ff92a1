"""Pixels in Pillow's own memory, against Pillow's copies of them."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from PIL import Image

from readers import decode_image
from readers.arrow import four_bytes, pixels_of


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("size", [(1, 1), (9, 7), (257, 300)])
def test_pixels_are_pillows_and_outlive_the_image(mode, size):
    channels = len(mode)
    pixels = np.random.RandomState(0).randint(0, 256, (size[1], size[0], channels)).astype(np.uint8)
    found = four_bytes(Image.fromarray(pixels).copy())
    assert found is not None
    gc.collect()
    others = [Image.fromarray(255 - pixels) for _ in range(20)]  # would take the memory if it were free
    np.testing.assert_array_equal(found[:, :, :channels], pixels)
    assert len(others) == 20


def test_pixels_of_another_array_or_a_mapped_file_are_copied(tmp_path):
    """Pillow before 13 crashes where it is asked for a view of them."""
    pixels = np.random.RandomState(0).randint(0, 256, (7, 9, 4)).astype(np.uint8)
    image = Image.fromarray(pixels)
    image.save(tmp_path / "mapped.tiff")
    with Image.open(tmp_path / "mapped.tiff") as mapped:
        for one in image, mapped:
            np.testing.assert_array_equal(pixels_of(one, "RGBA"), pixels)


def test_an_image_in_several_pieces_has_no_such_view_but_is_decoded(tmp_path):
    pixels = np.random.RandomState(0).randint(0, 256, (2100, 1, 3)).astype(np.uint8).repeat(2100, 1)  # above 16 MiB
    image = Image.fromarray(pixels)
    assert four_bytes(image) is None
    image.save(tmp_path / "large.png", compress_level=1)
    decoded = decode_image((tmp_path / "large.png").read_bytes())
    np.testing.assert_array_equal(decoded, pixels.transpose(2, 0, 1)[::-1])
