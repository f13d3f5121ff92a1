"""JPEGs that go straight to the decoder have the pixels that Pillow gives; all others are left to Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from readers import RecordError, decode_image
from readers.jpeg import decode_jpeg

PIXELS = np.random.RandomState(0).randint(0, 256, (37, 53, 3)).astype(np.uint8)


def jpeg(mode="RGB", size=(53, 37), **how):
    file = io.BytesIO()
    Image.fromarray(PIXELS).resize(size).convert(mode).save(file, "JPEG", **how)
    return file.getvalue()


KINDS = {
    "plain": jpeg(),
    "progressive": jpeg(progressive=True),
    "every colour sampled": jpeg(subsampling=0, quality=95),
    "with restarts": jpeg(restart_marker_rows=1),
    "with a comment, EXIF and a profile": jpeg(
        comment=b"a" * 300, exif=b"Exif\0\0" + b"b" * 900, icc_profile=b"c" * 70000
    ),
    "of one pixel": jpeg(size=(1, 1)),
    "with more behind it": jpeg() + b"trailing",
    "colours as they are": jpeg(keep_rgb=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_are_pillows(kind):
    image = decode_jpeg(KINDS[kind])
    with Image.open(io.BytesIO(KINDS[kind])) as other:
        assert image is not None and image.mode == other.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(image), np.asarray(other))


@pytest.mark.parametrize("color", [None, True, False])
@pytest.mark.parametrize("content", [jpeg("L"), jpeg("CMYK"), jpeg()], ids=["grey", "CMYK", "RGB"])
def test_what_is_decoded_to_is_the_same_the_long_way(monkeypatch, content, color):
    short = decode_image(content, color).copy()
    monkeypatch.setattr("readers.image.decode_jpeg", lambda content: None)
    np.testing.assert_array_equal(short, decode_image(content, color))


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_modes_are_left_to_pillow(mode):
    assert decode_jpeg(jpeg(mode)) is None


def test_an_image_that_is_too_large_for_pillow_is_left_to_it(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 900)
    assert decode_jpeg(jpeg()) is None
    with pytest.raises(RecordError, match="exceeds limit of 1800 pixels"):
        decode_image(jpeg())


@settings(max_examples=150, deadline=None)
@given(content=st.sampled_from(sorted(KINDS.values())), cut=st.integers(165, 1500), noise=st.binary(max_size=3))
def test_what_both_make_of_damaged_files_is_the_same(content, cut, noise):
    content = content[:cut] + noise + content[cut + 2 * len(noise) :]
    image = decode_jpeg(content)
    try:
        with Image.open(io.BytesIO(content)) as other:
            expected = np.asarray(other)
    except Exception:  # where Pillow reads the head more strictly than its decoder does
        return
    assert image is None or np.array_equal(np.asarray(image), expected)


@pytest.mark.parametrize("length", [0, 2, 3, 4, 20, 300, -2])
def test_files_that_end_early_are_bad_records(length):
    with pytest.raises(RecordError, match="can't be decoded as an image"):
        decode_image(KINDS["plain"][:length])
