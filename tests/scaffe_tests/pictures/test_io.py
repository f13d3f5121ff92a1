"""scaffe.pictures.io: pycaffe's caffe.io, against its formulas in plain numpy."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import scaffe
from scaffe.errors import ScaffeError, ShapeError
from scaffe.pictures import io
from scaffe.proto import BlobProto, BlobProtoVector, Datum

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 5, 3)).astype(np.uint8)


@pytest.fixture
def image(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "image.png")
    return tmp_path / "image.png"


def test_a_loaded_image_is_rgb_from_0_to_1(image):
    loaded = io.load_image(image)
    assert loaded.dtype == np.float32
    np.testing.assert_allclose(loaded, PIXELS / 255, rtol=1e-6)


def test_an_image_loaded_without_colour_has_one_channel(image):
    grey = io.load_image(image, color=False)
    assert grey.shape == (6, 5, 1)
    np.testing.assert_allclose(grey[:, :, 0], PIXELS @ [0.299, 0.587, 0.114] / 255, atol=2 / 255)


def test_an_image_that_is_none_is_named(tmp_path):
    (tmp_path / "text.png").write_text("words")
    with pytest.raises(ScaffeError, match="text.png can't be decoded as an image"):
        io.load_image(tmp_path / "text.png")
    with pytest.raises(ScaffeError, match="no.png: no such file"):
        io.load_image(tmp_path / "no.png")
    for name in ("text.png", "no.png"):  # programs skip such images by `except IOError`
        with pytest.raises(OSError, match=name):
            io.load_image(tmp_path / name)


@given(st.integers(1, 5))
def test_a_resized_ramp_is_a_ramp(channels):
    ramp = np.repeat(np.arange(8.0)[:, None, None], 4, axis=1).repeat(channels, axis=2)
    resized = io.resize_image(ramp, (16, 6))
    expected = np.clip((np.arange(16) + 0.5) / 2 - 0.5, 0, 7)
    assert (resized.dtype, resized.shape) == (np.float32, (16, 6, channels))
    np.testing.assert_allclose(resized, np.broadcast_to(expected[:, None, None], resized.shape), atol=1e-5)


def test_oversampling_takes_corners_and_centre_then_their_mirrors():
    images = RNG.random((2, 7, 9, 3)).astype(np.float32)
    crops = io.oversample(images, (4, 5))
    assert crops.shape == (20, 4, 5, 3)
    for im, ten in zip(images, crops.reshape(2, 10, 4, 5, 3), strict=True):
        expected = [im[:4, :5], im[:4, 4:], im[3:, :5], im[3:, 4:], im[1:5, 2:7]]
        np.testing.assert_array_equal(ten[:5], expected)
        np.testing.assert_array_equal(ten[5:], [crop[:, ::-1] for crop in expected])


def test_crops_larger_than_the_image_are_refused_with_both_sizes():
    with pytest.raises(ShapeError, match="can't crop 8 x 5 out of images of 7 x 9"):
        io.oversample(np.zeros((1, 7, 9, 3)), (8, 5))


@pytest.fixture
def transformer():
    return io.Transformer({"data": (1, 3, 6, 5)})


def test_nothing_set_leaves_the_image_as_it_is(transformer):
    image = PIXELS / 255
    np.testing.assert_array_equal(transformer.preprocess("data", image), image.astype(np.float32))


def everything(transformer, mean):
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_channel_swap("data", (2, 0, 1))
    transformer.set_raw_scale("data", 255)
    transformer.set_mean("data", mean)
    transformer.set_input_scale("data", 0.5)
    return transformer


@pytest.mark.parametrize("mean", [np.array([10.0, 20, 30]), RNG.random((3, 6, 5)) * 9, RNG.random((6, 5)) * 9])
def test_steps_come_in_pycaffes_order(transformer, mean):
    image = (PIXELS / 255).astype(np.float32)
    found = everything(transformer, mean).preprocess("data", image)
    spread = mean[:, None, None] if mean.ndim == 1 else mean
    expected = (image.transpose(2, 0, 1)[[2, 0, 1]] * 255 - spread) * 0.5
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(image, (PIXELS / 255).astype(np.float32))  # the caller's own is left alone


def test_deprocess_undoes_preprocess(transformer):
    image = (PIXELS / 255).astype(np.float32)
    everything(transformer, np.array([10.0, 20, 30]))
    batch = transformer.preprocess("data", image)[None]
    np.testing.assert_allclose(transformer.deprocess("data", batch), image, atol=1e-6)


def test_images_and_means_of_another_size_are_resized_to_the_inputs(transformer):
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_mean("data", np.full((3, 12, 10), 0.25))
    found = transformer.preprocess("data", np.full((9, 4, 3), 0.75))
    np.testing.assert_allclose(found, np.full((3, 6, 5), 0.5), atol=1e-6)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("transpose", (2, 0), "must name each of its 3 axes once, got \\(2, 0\\)"),
        ("channel_swap", (2, 1, 0, 3), "each of its 3 once, got"),
        ("channel_swap", (0, 0, 1), "each of its 3 once, got"),
        ("mean", np.zeros(4), "a mean of shape \\(4, 1, 1\\) doesn't fit its channels"),
        ("mean", np.zeros((4, 6, 5)), "doesn't fit"),
        ("mean", np.zeros((1, 3, 6, 5)), "doesn't fit"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_by_the_input(transformer, setting, value, said):
    with pytest.raises(ShapeError, match=f"input 'data'.*{said}"):
        getattr(transformer, f"set_{setting}")("data", value)


def test_an_unknown_input_is_told_with_the_known_ones(transformer):
    with pytest.raises(ScaffeError, match="'date' is no input; inputs: data"):
        transformer.preprocess("date", PIXELS)


def test_blobs_keep_values_and_gradients():
    values, diff = RNG.random((2, 3, 4)).astype(np.float32), RNG.random((2, 3, 4)).astype(np.float32)
    blob = BlobProto.FromString(io.array_to_blobproto(values, diff).SerializeToString())
    assert list(blob.shape.dim) == [2, 3, 4]
    np.testing.assert_array_equal(io.blobproto_to_array(blob), values)
    np.testing.assert_array_equal(io.blobproto_to_array(blob, return_diff=True), diff)


def test_old_blobs_have_four_axes(cases):
    with open(cases / "caffe/artefacts/mean.binaryproto", "rb") as file:
        blob = BlobProto.FromString(file.read())
    assert io.blobproto_to_array(blob).shape == (1, 3, 32, 32)
    assert io.blobproto_to_array(blob).sum() == pytest.approx(np.sum(blob.data), rel=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_datums_keep_what_they_are_given(dtype):
    values = RNG.integers(0, 256, (3, 2, 4)).astype(dtype)
    datum = Datum.FromString(io.array_to_datum(values, 7).SerializeToString())
    assert datum.label == 7
    assert bool(datum.data) == (dtype == np.uint8)
    np.testing.assert_array_equal(io.datum_to_array(datum), values)


def test_a_datum_has_three_axes():
    with pytest.raises(ShapeError, match=r"got shape \(2, 3\)"):
        io.array_to_datum(np.zeros((2, 3)))


@pytest.mark.parametrize("datum", [Datum(channels=3, height=2, width=2, data=b"abc"), Datum(encoded=True, data=b"abc")])
def test_a_datum_whose_values_do_not_fit_is_a_value_error(datum):
    with pytest.raises(ShapeError, match=r"a Datum: (expected 12 values for 3 x 2 x 2, got 3|can't be decoded)"):
        io.datum_to_array(datum)


def test_pycaffes_names_are_there():
    assert scaffe.pictures.io.Transformer and scaffe.Classifier
    assert scaffe.pictures.io.caffe_pb2 is scaffe.proto.caffe_pb2


def test_arrays_come_back_from_a_vector_of_blobs():
    arrays = [RNG.random((2, 3)).astype(np.float32), np.float32(4.5), np.zeros((0, 2), np.float32)]
    text = io.arraylist_to_blobprotovector_str(arrays)
    parsed = BlobProtoVector.FromString(text)
    assert [list(blob.shape.dim) for blob in parsed.blobs] == [[2, 3], [], [0, 2]]
    for found, array in zip(io.blobprotovector_str_to_arraylist(text), arrays, strict=True):
        np.testing.assert_array_equal(found, array)
    with pytest.raises(ValueError, match="4 bytes are not a serialised BlobProtoVector"):
        io.blobprotovector_str_to_arraylist(b"\xff\xff\xff\xff")


def test_a_blob_without_a_shape_is_a_scalar_or_an_error():
    assert io.blobproto_to_array(BlobProto(data=[123])) == 123
    with pytest.raises(ValueError, match="a stored blob without a shape, a scalar, has 100 values"):
        io.blobproto_to_array(BlobProto(data=[0] * 100))
    with pytest.raises(ValueError, match=r"a stored blob of shape \(1, 1, 10, 9\) has 100 values"):
        io.blobproto_to_array(BlobProto(data=[0] * 100, num=1, channels=1, height=10, width=9))


def test_the_order_of_interpolation_is_scipys():
    ramp = RNG.random((5, 6, 2)).astype(np.float32)
    doubled = io.resize_image(ramp, (10, 12), interp_order=0)
    np.testing.assert_array_equal(doubled, ramp.repeat(2, axis=0).repeat(2, axis=1))
    ndimage = pytest.importorskip("scipy.ndimage")
    for order in (1, 3, 5):
        found = io.resize_image(ramp, (8, 9), interp_order=order)
        rows, columns = (np.arange(8) + 0.5) * 5 / 8 - 0.5, (np.arange(9) + 0.5) * 6 / 9 - 0.5
        places = np.meshgrid(rows, columns, indexing="ij")
        expected = [ndimage.map_coordinates(ramp[..., k], places, order=order, mode="nearest") for k in (0, 1)]
        np.testing.assert_allclose(found, np.stack(expected, axis=2), atol=1e-5)


def test_an_order_of_interpolation_that_can_not_be_is_refused(monkeypatch):
    with pytest.raises(ScaffeError, match="interp_order must be 0 to 5, got 6"):
        io.resize_image(PIXELS, (3, 3), interp_order=6)
    monkeypatch.setitem(sys.modules, "scipy.ndimage", None)
    with pytest.raises(ScaffeError, match="interp_order 3 needs SciPy: pip install 'scaffe.resize.'"):
        io.resize_image(PIXELS, (3, 3), interp_order=3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_preprocessing_leaves_the_callers_array_alone(dtype):
    grey = io.Transformer({"data": (1, 1, 6, 5)})
    grey.set_raw_scale("data", 255)
    grey.set_mean("data", np.array([7.0]))
    image = RNG.random((6, 5)).astype(dtype)
    before = image.copy()
    found = grey.preprocess("data", image)
    np.testing.assert_array_equal(image, before)
    np.testing.assert_array_equal(found, (before.astype(np.float32) * np.float32(255) - np.float32(7))[None])


@pytest.mark.parametrize("shape", [(1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1)])
def test_deprocess_keeps_axes_of_size_1_of_an_image_and_drops_those_of_a_batch(shape):
    transformer = io.Transformer({"data": (1, *shape)})
    transformer.set_transpose("data", (2, 0, 1))
    image = np.random.RandomState(0).rand(*shape[1:], shape[0]).astype(np.float32)
    values = transformer.preprocess("data", image)
    np.testing.assert_array_equal(transformer.deprocess("data", values), image)
    np.testing.assert_array_equal(transformer.deprocess("data", values[None]), image)


def test_the_nearest_pixel_is_that_of_the_centre():
    image = np.arange(81, dtype=np.float32).reshape(9, 9, 1)
    np.testing.assert_array_equal(io.resize_image(image, (3, 3), 0), image[1::3, 1::3])
    np.testing.assert_array_equal(io.resize_image(image, (18, 18), 0), image.repeat(2, 0).repeat(2, 1))
