"""JPEGs that go straight to the decoder have the pixels that Pillow gives; all others are left to Pillow."""

from __future__ import annotations

import io
import os
import platform
import sys
from pathlib import Path
from subprocess import run

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from readers import RecordError, decode_image
from readers import jpeg as readers_jpeg
from readers.jpeg import decode_jpeg

PIXELS = np.random.RandomState(0).randint(0, 256, (37, 53, 3)).astype(np.uint8)


def written(mode="RGB", size=(53, 37), **how):
    file = io.BytesIO()
    Image.fromarray(PIXELS).resize(size).convert(mode).save(file, "JPEG", **how)
    return file.getvalue()


KINDS = {
    "plain": written(),
    "progressive": written(progressive=True),
    "every colour sampled": written(subsampling=0, quality=95),
    "with restarts": written(restart_marker_rows=1),
    "with a comment, EXIF and a profile": written(
        comment=b"a" * 300, exif=b"Exif\0\0" + b"b" * 900, icc_profile=b"c" * 70000
    ),
    "of one pixel": written(size=(1, 1)),
    "with more behind it": written() + b"trailing",
    "colours as they are": written(keep_rgb=True),
}


@pytest.fixture(params=["simplejpeg", "Pillow"])
def decoder(request, monkeypatch):
    """The library that decodes."""
    if request.param == "Pillow":
        monkeypatch.setattr(readers_jpeg, "simplejpeg", None)
    else:
        pytest.importorskip("simplejpeg")


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_are_pillows(decoder, kind):
    pixels = decode_jpeg(KINDS[kind])
    with Image.open(io.BytesIO(KINDS[kind])) as other:
        assert pixels is not None and other.mode == "RGB"
        np.testing.assert_array_equal(pixels[:, :, :3], np.asarray(other))


def test_without_the_extra_pillow_decodes(monkeypatch):
    monkeypatch.setattr(Image.Image, "frombytes", lambda image, *given: image.paste((7, 8, 9), (0, 0, 53, 37)))
    monkeypatch.setattr(readers_jpeg, "simplejpeg", None)
    assert decode_image(KINDS["plain"])[:, 0, 0].tolist() == [9, 8, 7]


def test_pixels_stay_while_they_are_used(decoder):
    first = decode_jpeg(KINDS["plain"])
    part, before = first[3:5, :, 1], first.copy()
    for kind in ("every colour sampled", "plain", "of one pixel", "progressive"):
        decode_jpeg(KINDS[kind])
        np.testing.assert_array_equal(first, before)
    del first
    other = decode_jpeg(KINDS["every colour sampled"])
    np.testing.assert_array_equal(part, before[3:5, :, 1])
    assert not np.shares_memory(part, other)


def test_pillow_decodes_into_memory_that_is_released(monkeypatch):
    monkeypatch.setattr(readers_jpeg, "simplejpeg", None)
    places = []
    for kind in ("plain", "every colour sampled", "progressive"):
        pixels = decode_jpeg(KINDS[kind])
        places.append(pixels.ctypes.data)
        with Image.open(io.BytesIO(KINDS[kind])) as other:
            np.testing.assert_array_equal(pixels[:, :, :3], np.asarray(other))
        del pixels
    assert len({*places}) == 1


def test_a_damaged_jpeg_leaves_the_next_one_whole(decoder):
    assert decode_jpeg(KINDS["plain"][:-300]) is None
    with Image.open(io.BytesIO(KINDS["plain"])) as other:
        np.testing.assert_array_equal(decode_jpeg(KINDS["plain"])[:, :, :3], np.asarray(other))


@pytest.mark.parametrize("color", [None, True, False])
@pytest.mark.parametrize("content", [written("L"), written("CMYK"), written()], ids=["grey", "CMYK", "RGB"])
def test_what_is_decoded_to_is_the_same_the_long_way(monkeypatch, content, color):
    short = decode_image(content, color).copy()
    monkeypatch.setattr("readers.image.decode_jpeg", lambda content: None)
    np.testing.assert_array_equal(short, decode_image(content, color))


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_modes_are_left_to_pillow(mode):
    assert decode_jpeg(written(mode)) is None


def test_an_image_that_is_too_large_for_pillow_is_left_to_it(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 900)
    assert decode_jpeg(written()) is None
    with pytest.raises(RecordError, match="exceeds limit of 1800 pixels"):
        decode_image(written())


@settings(max_examples=150, deadline=None)
@given(
    content=st.sampled_from(sorted(KINDS.values())),
    cut=st.integers(165, 1500),
    noise=st.binary(max_size=3),
    by_pillow=st.booleans(),
)
def test_what_both_make_of_damaged_files_is_the_same(content, cut, noise, by_pillow):
    content = content[:cut] + noise + content[cut + 2 * len(noise) :]
    with pytest.MonkeyPatch.context() as patch:
        if by_pillow:
            patch.setattr(readers_jpeg, "simplejpeg", None)
        pixels = decode_jpeg(content)
    try:
        with Image.open(io.BytesIO(content)) as other:
            expected = np.asarray(other)
    except Exception:  # where Pillow reads the head more strictly than its decoder does
        return
    assert pixels is None or np.array_equal(pixels[:, :, :3], expected)


@pytest.mark.parametrize("length", [0, 2, 3, 4, 20, 300, -2])
def test_files_that_end_early_are_bad_records(length):
    with pytest.raises(RecordError, match="can't be decoded as an image"):
        decode_image(KINDS["plain"][:length])


@pytest.mark.skipif(readers_jpeg.simplejpeg is None, reason="needs simplejpeg")
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (53, 37)])
def test_pixels_begin_where_the_decoder_writes_into_the_cache(size):
    pixels = decode_jpeg(written(size=size))
    assert pixels.__array_interface__["data"][0] % 32 == 16


ROWS = """
import random
import numpy as np
import readers.jpeg
from test_jpeg import written

readers.jpeg.simplejpeg = None
draw = random.Random(3)
blocks = [np.empty(draw.randrange(8, 6000), np.uint8) for _ in range(3000)]  # then a heap with holes
draw.shuffle(blocks)
del blocks[1500:]
begin_there = 0
for width in 2 * (256, 333, 375, 500, 1000):
    content = written(size=(width, 5))
    blocks += [np.empty(draw.randrange(8, 6000), np.uint8) for _ in range(1500)]  # other work moves the heap
    draw.shuffle(blocks)
    del blocks[1500:]
    for _ in range(10):
        assert readers.jpeg.decode_jpeg(content) is not None
        row = np.zeros(4 * width, np.uint8)  # by calloc, as Pillow's decoder has it
        begin_there += row.__array_interface__["data"][0] % 32 == 16
print(begin_there)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc may give other memory")
def test_pillows_decoder_gets_memory_for_rows_that_begins_where_it_writes_into_the_cache():
    here = os.pathsep.join([str(Path(__file__).parent), *sys.path])  # a process of its own: its heap is always the same
    done = run([sys.executable, "-c", ROWS], env={**os.environ, "PYTHONPATH": here}, capture_output=True, text=True)
    assert int(done.stdout) >= 80, done  # of 100; without, half


def test_a_thread_keeps_memory_within_bounds(monkeypatch):
    monkeypatch.setattr(readers_jpeg, "_begin_so", lambda width: True)
    rows = readers_jpeg._Rows()
    for width in (readers_jpeg.NARROWEST - 1, readers_jpeg.WIDEST + 1):
        rows.keep(width)
    assert not rows._kept
    for _ in range(100):
        rows.keep(readers_jpeg.NARROWEST)
    assert readers_jpeg.MOST <= len(rows._kept) < readers_jpeg.MOST + readers_jpeg.BLOCKS


def test_a_thread_keeps_no_memory_where_rows_begin_elsewhere(monkeypatch):
    monkeypatch.setattr(readers_jpeg, "_begin_so", lambda width: False)
    rows = readers_jpeg._Rows()
    rows.keep(readers_jpeg.NARROWEST)
    assert not rows._kept
