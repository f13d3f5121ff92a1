"""Arrays with their channels last, in bfloat16, and back; sums over channels: by the kernels, on the host."""

import fake_cublas
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strict_arrays import a_gpu

from scaffe.engines.cuda import Cuda
from scaffe.engines.cuda.layouts import (
    BF16,
    _side_by_side,
    add_channel_sums,
    add_row_sums,
    channels_first,
    channels_last,
    finish_rows,
)


@pytest.fixture(scope="module")
def engine():
    return Cuda(a_gpu())


def bits_of(values):
    """Return bfloat16 numbers, rounded, halves to even."""
    return (fake_cublas.rounded(values, 7).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("low", [False, True])
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(1, 40), st.integers(1, 70), st.booleans(), st.booleans())
def test_channels_go_last_and_come_back(engine, low, n, channels, positions, biased, add):
    xp, rng = engine.gpu.xp, np.random.default_rng(0)
    x = rng.standard_normal((n, channels, positions)).astype(np.float32)
    last = xp.empty((n, positions, channels), BF16 if low else np.float32)
    channels_last(engine, xp.asarray(x), last)
    turned = np.ascontiguousarray(x.transpose(0, 2, 1))
    np.testing.assert_array_equal(last.get(), bits_of(turned) if low else turned)
    bias, y = rng.standard_normal(channels).astype(np.float32), xp.asarray(x)
    channels_first(engine, last, y, xp.asarray(bias) if biased else None, add)
    expected = fake_cublas.rounded(x, 7 if low else 23)
    expected = expected + (bias[:, None] if biased else 0) + (x if add else 0)
    np.testing.assert_allclose(y.get(), expected, rtol=1e-6, atol=1e-6)


def test_what_bfloat16_has_no_number_for_stays_what_it_is(engine):
    xp = engine.gpu.xp
    odd = np.array([np.inf, -np.inf, np.nan, 3.4e38, -0.0, 1e-45], np.float32).reshape(1, 6, 1)
    last, back = xp.empty((1, 1, 6), BF16), xp.empty((1, 6, 1), np.float32)
    channels_last(engine, xp.asarray(odd), last)
    channels_first(engine, last, back)
    np.testing.assert_array_equal(back.get().ravel(), np.array([np.inf, -np.inf, np.nan, np.inf, 0, 0], np.float32))


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 300))
def test_sums_of_channels_are_added(engine, images, channels, positions):
    xp = engine.gpu.xp
    maps = np.random.default_rng(1).integers(-9, 9, (images, channels, positions)).astype(np.float32)
    total = xp.asarray(np.full(channels, 5, np.float32))
    add_channel_sums(engine, xp.asarray(maps), total)
    np.testing.assert_array_equal(total.get(), 5 + maps.sum((0, 2)))


@pytest.mark.parametrize("low", [False, True])
@settings(max_examples=12, deadline=None)
@given(st.integers(1, 5), st.integers(1, 300), st.sampled_from([1, 3, 8, 20, 24, 64, 300, 1032]))
def test_maps_channels_last_are_summed_and_get_a_bias(engine, low, images, positions, channels):
    xp, rng = engine.gpu.xp, np.random.default_rng(1)
    maps = rng.integers(-9, 9, (images, positions, channels)).astype(np.float32)
    array = xp.asarray(bits_of(maps) if low else maps)
    total, bias = xp.asarray(np.full(channels, 5, np.float32)), rng.integers(-9, 9, channels).astype(np.float32)
    add_row_sums(engine, array, total)
    np.testing.assert_array_equal(total.get(), 5 + maps.sum((0, 1)))
    finish_rows(engine, array, xp.asarray(bias))
    np.testing.assert_array_equal(array.get(), bits_of(maps + bias) if low else maps + bias)
    finish_rows(engine, array, xp.asarray(bias), rectified=True)
    right = np.maximum(maps + 2 * bias, 0)
    np.testing.assert_array_equal(array.get(), bits_of(right) if low else right)


def test_what_is_rectified_keeps_nan(engine):
    array = engine.gpu.xp.asarray(np.array([[np.nan, -1.0, 2.0, -0.0]], np.float32))
    finish_rows(engine, array, rectified=True)
    np.testing.assert_array_equal(array.get(), [[np.nan, 0, 2, 0]])


def at_odd_address(xp, values, step=1):
    """Return values in an array that begins `step` elements beyond a multiple of 16 bytes."""
    memory = xp.zeros(values.size + 8, values.dtype)
    start = next(i for i in range(8) if memory[i:].data.ptr % 16 == step * values.itemsize)
    array = memory[start : start + values.size].reshape(values.shape)
    array[...] = xp.asarray(values)
    return array


def test_kernels_of_16_bytes_a_thread_read_and_write_odd_addresses_one_by_one(engine):
    xp, rng = engine.gpu.xp, np.random.default_rng(3)
    a, b = (rng.standard_normal(37).astype(np.float32) for _ in range(2))
    for at in [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0), (1, 2, 3)]:
        x, z, y = (at_odd_address(xp, values, step) for values, step in zip((a, b, 0 * a), at, strict=True))
        engine.over("relu", "relu", y.size, x, y, 0.0, each=4)
        np.testing.assert_array_equal(y.get(), np.maximum(a, 0))
        engine.over("eltwise", "eltwise_product", y.size, x, z, y, each=4)
        np.testing.assert_array_equal(y.get(), a * b)
        engine.over("eltwise", "eltwise_max", y.size, x, z, y, xp.zeros(37, np.int32), each=4)
        np.testing.assert_array_equal(y.get(), np.maximum(a, b))


def test_maps_that_begin_at_an_odd_address_are_read_number_by_number(engine, monkeypatch):
    xp, launched, launch = engine.gpu.xp, [], engine.launch
    monkeypatch.setattr(engine, "launch", lambda *given: launched.append(given[1]) or launch(*given))
    maps = at_odd_address(xp, np.arange(32, dtype=np.float32).reshape(4, 8))
    total = xp.zeros(8, np.float32)
    add_row_sums(engine, maps, total)
    finish_rows(engine, maps, total)
    np.testing.assert_array_equal(total.get(), np.arange(32).reshape(4, 8).sum(0))
    assert launched == ["row_sums_1", "row_sums_1", "finish_1"]


@pytest.mark.parametrize(
    ("groups", "blocks", "threads"), [(8, 1, 8), (12, 1, 12), (128, 1, 128), (130, 4, 33), (512, 2, 256), (1, 1, 1)]
)
def test_few_threads_are_idle_where_rows_are_summed(groups, blocks, threads):
    assert _side_by_side(groups) == (blocks, threads)
