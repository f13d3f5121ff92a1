"""Images transformed by the device's kernel have the bits that the host's transform gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strict_arrays import a_gpu

from readers import Transform
from scaffe.engines.cuda.engine import Cuda
from scaffe.engines.cuda.transform import ImageTransform


@pytest.fixture(scope="module")
def engine():
    return Cuda(a_gpu())


@st.composite
def cases(draw):
    """Return a transform and the images it is for."""
    n, channels, height, width = (draw(st.integers(1, most)) for most in (5, 4, 19, 21))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    images = rng.integers(0, 256, (n, channels, height, width), np.uint8)
    if draw(st.booleans()):
        images = rng.normal(0, 100, images.shape).astype(np.float32)
    values = draw(st.sampled_from([0, 1, channels, "image"]))
    transform = Transform(
        scale=draw(st.sampled_from([1, 1 / 256, 0.017, -3])),
        crop_size=draw(st.integers(0, min(height, width))),
        mirror=draw(st.booleans()),
        mean=rng.normal(100, 40, images.shape[1:]).astype(np.float32) if values == "image" else None,
        mean_values=() if values == "image" else tuple(rng.normal(100, 40, values)),
        train=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )
    return transform, images


def both(engine, transform, images):
    """Return the batch that the device makes and the one that the host makes."""
    numbers = np.arange(len(images))
    host = np.empty((len(images), *transform.output_shape(images.shape[1:])), np.float32)
    transform.apply(images, numbers // 2, numbers, host)
    places = transform.places(images.shape[2:], numbers // 2, numbers)
    xp = engine.gpu.xp
    given = xp.asarray(images), xp.asarray(places.T.astype(np.int32).copy())
    device = xp.empty(host.shape, np.float32)
    ImageTransform(engine, transform)(*given, device)
    return device.get(), host


@settings(max_examples=150, deadline=None)
@given(case=cases())
def test_the_device_gives_the_hosts_bits(engine, case):
    device, host = both(engine, *case)
    np.testing.assert_array_equal(device.view(np.uint32), host.view(np.uint32))


def test_images_in_a_list_of_their_own_are_the_same(engine):
    images = np.random.default_rng(1).integers(0, 256, (6, 3, 40, 50), np.uint8)
    transform = Transform(scale=0.017, crop_size=27, mirror=True, mean_values=(104.0, 117.0, 123.0), train=True, seed=3)
    numbers, host = np.arange(6), np.empty((6, 3, 27, 27), np.float32)
    transform.apply(list(images), numbers // 2, numbers, host)
    np.testing.assert_array_equal(both(engine, transform, images)[0], host)


def test_more_planes_than_a_launch_has_blocks_for(engine):
    images = np.random.default_rng(2).integers(0, 256, (66000, 1, 2, 3), np.uint8)
    np.testing.assert_array_equal(*both(engine, Transform(mirror=True, scale=0.5, seed=5), images))


def test_a_batch_of_a_part_of_the_rows_is_left_as_it_was_beyond(engine):
    xp = engine.gpu.xp
    out = xp.asarray(np.full((3, 1, 2, 2), 7, np.float32))
    images, places = xp.asarray(np.ones((2, 1, 2, 2), np.uint8)), xp.asarray(np.zeros((2, 3), np.int32))
    ImageTransform(engine, Transform())(images, places, out)
    assert out.get()[:2].max() == 1 and out.get()[2].min() == 7
