"""Transforms, against Caffe's formula pixel by pixel, and their independence of how a batch is divided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers import ReaderError, RecordError, Transform, share
from readers.transform import draw

numbers = st.integers(0, 2**40)


def some_images(count: int, channels: int = 3, height: int = 7, width: int = 9) -> list[np.ndarray]:
    pixels = np.random.RandomState(count).randint(0, 256, (count, channels, height, width), np.uint8)
    return list(pixels)


def apply(transform: Transform, images: list[np.ndarray], epochs=None, indices=None) -> np.ndarray:
    out = np.full((len(images), *transform.output_shape(images[0].shape)), np.nan, np.float32)
    epochs = np.zeros(len(images), np.int64) if epochs is None else epochs
    indices = np.arange(len(images)) if indices is None else indices
    transform.apply(images, epochs, indices, out)
    return out


def by_the_formula(transform: Transform, image: np.ndarray, top: int, left: int, flip: bool) -> np.ndarray:
    """Caffe's loop: out[c, h, w or mirrored w] = (image - mean) * scale at (c, top + h, left + w)."""
    channels, height, width = transform.output_shape(image.shape)
    out = np.empty((channels, height, width), np.float32)
    for c, h, w in np.ndindex(channels, height, width):
        mean = np.float32(0)
        if transform.mean is not None:
            mean = transform.mean[c, top + h, left + w]
        elif transform.mean_values:
            mean = np.float32(transform.mean_values[c % len(transform.mean_values)])
        value = (np.float32(image[c, top + h, left + w]) - mean) * np.float32(transform.scale)
        out[c, h, width - 1 - w if flip else w] = value
    return out


def all_outcomes(transform: Transform, image: np.ndarray) -> dict[bytes, tuple[int, int, bool]]:
    """Every crop and flip that the transform may choose for an image, by its bytes."""
    _, height, width = transform.output_shape(image.shape)
    places = np.ndindex(image.shape[1] - height + 1, image.shape[2] - width + 1, 2)
    return {by_the_formula(transform, image, t, le, bool(f)).tobytes(): (t, le, bool(f)) for t, le, f in places}


MEAN = (np.random.RandomState(0).rand(3, 7, 9) * 255).astype(np.float32)
MEANS = [{}, {"mean": MEAN}, {"mean_values": (104.0,)}, {"mean_values": (104.0, 117.0, 123.0)}]


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("crop", [0, 4, 7])
@pytest.mark.parametrize("scale", [1, 1 / 256])
def test_a_test_batch_is_cut_from_the_centre_and_follows_the_formula(mean, crop, scale):
    transform = Transform(scale=scale, crop_size=crop, **mean)
    images = some_images(4)
    top, left = ((7 - crop) // 2, (9 - crop) // 2) if crop else (0, 0)
    expected = [by_the_formula(transform, image, top, left, False) for image in images]
    np.testing.assert_array_equal(apply(transform, images), expected)


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("train", [False, True])
def test_crop_and_flip_are_one_of_those_that_the_formula_allows(mean, train):
    transform = Transform(scale=0.5, crop_size=4, mirror=True, train=train, seed=5, **mean)
    images = some_images(1) * 400
    outcomes = all_outcomes(transform, images[0])
    seen = {outcomes[row.tobytes()] for row in apply(transform, images)}
    places = {(t, le) for t in range(4) for le in range(6)} if train else {(1, 2)}
    assert seen == {(*place, flip) for place in places for flip in (False, True)}


def test_float_images_are_transformed_like_pixels():
    images = [image.astype(np.float32) / 3 for image in some_images(2)]
    transform = Transform(scale=2, mean=MEAN, crop_size=3)
    expected = [by_the_formula(transform, image, 2, 3, False) for image in images]
    np.testing.assert_array_equal(apply(transform, images), expected)


@given(st.integers(1, 12), st.integers(1, 5), st.integers(-1, 2**63), st.integers(0, 10**9))
def test_a_batch_comes_out_the_same_however_it_is_divided(count, size, seed, first):
    transform = Transform(crop_size=5, mirror=True, mean=MEAN, train=True, seed=seed)
    images = some_images(count)
    epochs, indices = np.divmod(np.arange(first, first + count), 7)
    whole = apply(transform, images, epochs, indices)
    size = min(size, count)
    for start, stop in (share(count, rank, size) for rank in range(size)):
        part = apply(transform, images[start:stop], epochs[start:stop], indices[start:stop])
        np.testing.assert_array_equal(part, whole[start:stop])


def test_another_epoch_or_seed_draws_another_crop():
    images, indices = some_images(1) * 64, np.arange(64)
    batches = {
        apply(Transform(crop_size=4, train=True, seed=seed), images, np.full(64, epoch), indices).tobytes()
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(batches) == 4


def test_images_of_several_sizes_are_cut_to_one():
    images = [some_images(1, 3, height, width)[0] for height, width in ((4, 4), (9, 5), (6, 12))]
    transform = Transform(crop_size=4)
    expected = [by_the_formula(transform, i, (i.shape[1] - 4) // 2, (i.shape[2] - 4) // 2, False) for i in images]
    np.testing.assert_array_equal(apply(transform, images), expected)


@given(st.integers(-(2**70), 2**70), numbers, numbers, st.integers(0, 2), st.integers(1, 10**6))
def test_a_draw_is_splitmix64_chained_over_its_numbers(seed, epoch, index, purpose, bound):
    state = seed % 2**64
    for number in (purpose, epoch, index):
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    [drawn] = draw(seed, np.array([epoch]), np.array([index]), purpose, np.array([bound], np.uint64))
    assert drawn == (state >> 32) * bound >> 32


def test_draws_are_uniform_and_independent_of_each_other():
    epochs, indices = np.divmod(np.arange(60000), 1000)
    first, second = (draw(7, epochs, indices, purpose, np.uint64(6)).astype(int) for purpose in (0, 1))
    counts = np.bincount(6 * first + second, minlength=36)
    chi_square = ((counts - 60000 / 36) ** 2 / (60000 / 36)).sum()
    assert chi_square < 66.6  # the 0.1 % quantile of 35 degrees of freedom


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (Transform(), (3, 7, 9)),
        (Transform(crop_size=5), (3, 5, 5)),
        (Transform(crop_size=7, mean=MEAN), (3, 7, 7)),
    ],
)
def test_the_shape_is_the_crops_or_the_images(transform, expected):
    assert transform.output_shape((3, 7, 9)) == expected


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (Transform(crop_size=8), "is 3 x 7 x 9, smaller than the crop_size of 8"),
        (Transform(mean=MEAN[:1]), "is 3 x 7 x 9, but the mean image is 1 x 7 x 9"),
        (Transform(mean=MEAN[:, :5, :5], crop_size=5), "is 3 x 7 x 9, but the mean image is 3 x 5 x 5"),
        (Transform(mean_values=(1.0, 2.0)), "2 mean values: give 1 or 3"),
    ],
)
def test_an_image_that_does_not_fit_is_refused(transform, text):
    with pytest.raises(RecordError, match=text):
        transform.output_shape((3, 7, 9))


def test_settings_that_contradict_are_refused():
    with pytest.raises(ReaderError, match="both mean_file and mean_value"):
        Transform(mean=MEAN, mean_values=(1.0,))
    with pytest.raises(ReaderError, match="crop_size of 0 or more, got -1"):
        Transform(crop_size=-1)
    with pytest.raises(ReaderError, match="mean image"):
        Transform(mean=MEAN[0])


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("crop", [0, 4, 7])
@pytest.mark.parametrize("train", [False, True])
def test_images_in_one_array_come_out_as_those_one_by_one(mean, crop, train):
    images = some_images(16)
    transform = Transform(scale=0.3, crop_size=crop, mirror=True, train=train, seed=4, **mean)
    np.testing.assert_array_equal(apply(transform, np.stack(images)), apply(transform, images))


def test_planes_that_lie_pixel_by_pixel_are_transformed_like_others():
    """A decoded JPEG's planes are a view of its pixels."""
    images = some_images(8)
    views = [np.ascontiguousarray(image.transpose(1, 2, 0)).transpose(2, 0, 1) for image in images]
    transform = Transform(crop_size=4, mirror=True, train=True, mean=MEAN)
    np.testing.assert_array_equal(apply(transform, views), apply(transform, images))
