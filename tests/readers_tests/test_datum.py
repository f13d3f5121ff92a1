"""Datums and mean images, against Caffe's files and plain arithmetic."""

from __future__ import annotations

import io

import lmdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from readers import RecordError, SourceError, decode, encode, read_mean, write_mean
from readers.datum_pb2 import BlobProto, Datum

RGB = np.random.RandomState(3).randint(0, 256, (6, 5, 3), np.uint8)


def file_content(pixels: np.ndarray, form: str = "PNG", mode: str | None = None) -> bytes:
    image = Image.fromarray(pixels)
    file = io.BytesIO()
    (image.convert(mode) if mode else image).save(file, form)
    return file.getvalue()


def stored(folder) -> list[tuple[bytes, bytes]]:
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


@pytest.mark.parametrize("name", ["train_lmdb", "resized_lmdb", "gray_resized_lmdb"])
def test_a_raw_datum_of_caffe_decodes_and_encodes_to_the_same_bytes(cases, name):
    for _, value in stored(cases / "caffe/artefacts" / name):
        assert encode(*decode(value)) == value


@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_an_encoded_datum_of_caffe_is_written_with_the_same_bytes(cases, kind):
    for _, value in stored(cases / f"caffe/artefacts/train_encoded_{kind}_lmdb"):
        datum = Datum.FromString(value)
        assert encode(datum.data, datum.label) == value


def test_an_encoded_png_holds_the_pixels_of_the_raw_datum(cases):
    raw = stored(cases / "caffe/artefacts/train_lmdb")
    png = stored(cases / "caffe/artefacts/train_encoded_png_lmdb")
    for (key, value), (png_key, png_value) in zip(raw, png, strict=True):
        (image, label), (png_image, png_label) = decode(value), decode(png_value)
        assert (key, label) == (png_key, png_label)
        np.testing.assert_array_equal(image, png_image)


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9), st.integers(-(2**31), 2**31 - 1), st.booleans())
def test_what_is_encoded_is_decoded(channels, height, width, label, floating):
    image = np.random.RandomState(height).randint(0, 256, (channels, height, width), np.uint8)
    if floating:
        image = image.astype(np.float32) / 7
    back, back_label = decode(encode(image, label))
    assert (back.dtype, back.shape, back_label) == (image.dtype, image.shape, label)
    np.testing.assert_array_equal(back, image)


@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 4, 4), (0, 4, 5), (-3, -4, 5)])
def test_data_of_another_size_than_the_shape_is_refused(shape):
    datum = Datum.FromString(encode(np.zeros((3, 4, 5), np.uint8), 0))
    datum.channels, datum.height, datum.width = shape
    with pytest.raises(RecordError, match="expected"):
        decode(datum.SerializeToString())


@pytest.mark.parametrize("value", [b"\xff\xff\xff\xff", b"not a datum at all", b""])
def test_bytes_that_are_no_datum_are_refused(value):
    with pytest.raises(RecordError):
        decode(value)


@pytest.mark.parametrize("image", [np.zeros((4, 4), np.uint8), np.zeros((1, 4, 4), np.int32)])
def test_an_array_that_fits_no_datum_is_refused(image):
    with pytest.raises(RecordError, match=f"{image.dtype}"):
        encode(image, 0)


def test_a_colour_image_is_decoded_to_blue_green_red():
    for color in (None, True):
        image, _ = decode(encode(file_content(RGB), 1), color)
        np.testing.assert_array_equal(image, RGB[:, :, ::-1].transpose(2, 0, 1))


def test_a_grey_image_keeps_its_channel_unless_colour_is_forced():
    grey = RGB[:, :, 0]
    for color, channels in ((None, 1), (False, 1), (True, 3)):
        image, _ = decode(encode(file_content(grey), 1), color)
        np.testing.assert_array_equal(image, np.stack([grey] * channels))


def test_forced_grey_weighs_the_colours_as_libpng_does():
    image, _ = decode(encode(file_content(RGB), 1), False)
    expected = [[(9797 * int(r) + 19234 * int(g) + 3737 * int(b)) >> 15 for r, g, b in row] for row in RGB]
    np.testing.assert_array_equal(image, [expected])


def test_forced_grey_of_a_jpeg_is_its_own_luminance():
    content = file_content(RGB, "JPEG")
    with Image.open(io.BytesIO(content)) as jpeg:
        jpeg.draft("L", jpeg.size)
        luminance = np.asarray(jpeg)
    image, _ = decode(encode(content, 1), False)
    np.testing.assert_array_equal(image, luminance[None])


def test_transparency_is_a_fourth_channel_unless_the_number_is_forced():
    alpha = np.dstack([RGB, RGB[:, :, 0]])
    content = encode(file_content(alpha), 1)
    np.testing.assert_array_equal(decode(content)[0], alpha[:, :, [2, 1, 0, 3]].transpose(2, 0, 1))
    np.testing.assert_array_equal(decode(content, True)[0], RGB[:, :, ::-1].transpose(2, 0, 1))
    assert decode(content, False)[0].shape == (1, 6, 5)


def test_sixteen_bits_are_read_as_their_upper_eight():
    deep = np.arange(0, 60000, 2000, np.uint16).reshape(6, 5)
    np.testing.assert_array_equal(decode(encode(file_content(deep), 0))[0], [deep // 256])


def test_a_palette_is_decoded_to_its_colours():
    content = file_content(RGB[:2, :2], mode="P")
    with Image.open(io.BytesIO(content)) as image:
        expected = np.asarray(image.convert("RGB"))[:, :, ::-1].transpose(2, 0, 1)
    np.testing.assert_array_equal(decode(encode(content, 0))[0], expected)


def test_a_palette_with_transparency_has_four_channels_or_those_asked_for():
    palette = Image.fromarray(RGB[:2, :2]).convert("P")
    file = io.BytesIO()
    palette.save(file, "PNG", transparency=bytes(range(4)))
    with Image.open(io.BytesIO(file.getvalue())) as image:
        expected = np.asarray(image.convert("RGBA"))[:, :, [2, 1, 0, 3]].transpose(2, 0, 1)
    content = encode(file.getvalue(), 0)
    np.testing.assert_array_equal(decode(content)[0], expected)
    np.testing.assert_array_equal(decode(content, True)[0], expected[:3])


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
@given(kept=st.floats(0, 0.9))
def test_an_image_that_lacks_some_of_its_pixels_is_refused(form, kept):
    noise = np.random.RandomState(0).randint(0, 256, (40, 40, 3), np.uint8)
    content = file_content(noise, form)
    with pytest.raises(RecordError, match="can't be decoded as an image"):
        decode(encode(content[: int(kept * len(content))] or b"?", 0))


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_damaged_image_is_an_image_or_a_record_error(place, flip):
    content = bytearray(file_content(RGB))
    content[place % len(content)] ^= flip
    try:
        image, _ = decode(encode(bytes(content), 0))
    except RecordError as error:
        assert "\n" not in str(error)
    else:
        assert image.dtype == np.uint8


def test_the_mean_file_of_caffe_is_read_and_written_with_the_same_bytes(cases, tmp_path):
    theirs = cases / "caffe/artefacts/mean.binaryproto"
    mean = read_mean(theirs)
    assert (mean.shape, mean.dtype) == ((3, 32, 32), np.float32)
    write_mean(tmp_path / "mean.binaryproto", mean)
    assert (tmp_path / "mean.binaryproto").read_bytes() == theirs.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["mean.binaryproto"]


@pytest.mark.parametrize("dims", [(2, 3, 4), (1, 2, 3, 4)])
def test_a_mean_file_with_the_new_shape_is_read(tmp_path, dims):
    blob = BlobProto(data=np.arange(24, dtype=np.float32))
    blob.shape.dim.extend(dims)
    (tmp_path / "mean").write_bytes(blob.SerializeToString())
    np.testing.assert_array_equal(read_mean(tmp_path / "mean"), np.arange(24).reshape(2, 3, 4))


@pytest.mark.parametrize("dims", [(2, 3, 5), (2, 2, 3, 2), (24,), ()])
def test_a_mean_file_that_is_not_one_image_is_refused(tmp_path, dims):
    blob = BlobProto(data=np.arange(24, dtype=np.float32))
    blob.shape.dim.extend(dims)
    (tmp_path / "mean").write_bytes(blob.SerializeToString())
    with pytest.raises(SourceError, match="expected one image"):
        read_mean(tmp_path / "mean")


def test_a_mean_file_that_is_missing_or_something_else_is_refused(tmp_path):
    with pytest.raises(SourceError, match="mean.binaryproto: no such file"):
        read_mean(tmp_path / "mean.binaryproto")
    (tmp_path / "text").write_text("scale: 1\n")
    with pytest.raises(SourceError, match="text: not a .binaryproto"):
        read_mean(tmp_path / "text")


def test_a_mean_file_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(SourceError, match="can't be written"):
        write_mean(tmp_path / "folder", np.zeros((1, 2, 2), np.float32))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
