"""The codecs' kernels, launched as on a GPU, run on the host: the bits of the host's codecs, and of error feedback."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import host_kernels
import numpy as np
import pytest
from host_kernels import with_halves
from recorded import settle
from strict_arrays import Array

from collectives.codecs import BLOCK, CODECS
from collectives.execution.device import codec_kernels, kernels
from collectives.execution.device.cuda import BLOCKS, THREADS, CudaDevice
from collectives.execution.operations import OPERATIONS

STREAM: Any = nullcontext()
COUNTS = [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 7]


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> CudaDevice:
    """A GPU whose module has the codecs' kernels, compiled for the host."""
    coded = codec_kernels.source(kernels.OPERATIONS)

    def module(code: str, options: tuple[str, ...]) -> Any:
        assert code.endswith(coded)
        return host_kernels.RawModule(with_halves(kernels.COMMON) + coded, options)

    runtime = SimpleNamespace(getDeviceProperties=lambda number: {"uuid": b"0"}, deviceGetPCIBusId=str)
    cuda = SimpleNamespace(runtime=runtime, Device=lambda: SimpleNamespace(id=0))
    return CudaDevice(SimpleNamespace(cuda=cuda, RawModule=module))


def drawn(count: int, *beside: float) -> np.ndarray:
    """Return numbers of several magnitudes, among them some that lie between two of 16 bits, and those beside."""
    random = np.random.default_rng(count)
    values = random.standard_normal(count).astype(np.float32) * np.float32(2) ** random.integers(-9, 9, count)
    special = np.float32([0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, *beside])[:count]
    values[: special.size] = special
    return values.astype(np.float32)


def message_of(name: str, count: int) -> Any:
    return Array(np.full(CODECS[name]().nbytes(count), 0x5B, np.uint8))


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("count", COUNTS)
def test_bytes_are_the_hosts_and_so_are_the_numbers_in_them(device: CudaDevice, name: str, count: int) -> None:
    codec, values, message = CODECS[name](), drawn(count), message_of(name, count)
    expected, numbers = np.empty(message.values.size, np.uint8), np.empty(count, np.float32)
    codec.encode(values, expected)
    codec.decode(expected, numbers)
    given, found = Array(values.copy()), Array(np.zeros(count, np.float32))
    device.encode(name, given, message, None, False, STREAM)
    device.decode(name, message, found, STREAM)
    settle()
    np.testing.assert_array_equal(message.values, expected)
    np.testing.assert_array_equal(found.values.view(np.uint32), numbers.view(np.uint32))
    np.testing.assert_array_equal(given.values.view(np.uint32), values.view(np.uint32))  # not rounded
    for op in ("sum", "max", "min", "mean"):
        target, source = Array(np.zeros(count, np.float32)), Array(drawn(count)[::-1].copy())
        device.decode_join(OPERATIONS[op], name, target, source, message, STREAM)
        settle()
        np.testing.assert_array_equal(target.values, OPERATIONS[op].ufunc(source.values, numbers))


@pytest.mark.parametrize("name", CODECS)
def test_what_is_no_number_or_too_large_arrives_as_on_the_host(device: CudaDevice, name: str) -> None:
    values = drawn(4 * BLOCK)
    values[:BLOCK] = 0
    values[BLOCK], values[2 * BLOCK + 5], values[3 * BLOCK + 9] = np.inf, np.nan, -7e4
    values.view(np.uint32)[2 * BLOCK + 6 : 2 * BLOCK + 9] = 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF  # NaN too
    codec, message, found = CODECS[name](), message_of(name, values.size), Array(np.zeros(values.size, np.float32))
    expected, numbers = np.empty(message.values.size, np.uint8), np.empty(values.size, np.float32)
    with np.errstate(invalid="ignore"):
        codec.encode(values, expected)
    codec.decode(expected, numbers)
    device.encode(name, Array(values), message, None, False, STREAM)
    device.decode(name, message, found, STREAM)
    settle()
    np.testing.assert_array_equal(found.values, numbers)
    assert np.isnan(found.values).any() and not found.values[:BLOCK].any()


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("spreads", [False, True])
def test_what_rounding_loses_is_added_the_next_time(device: CudaDevice, name: str, spreads: bool) -> None:
    count = 2 * BLOCK + 3
    codec, message, bytes_ = CODECS[name](), message_of(name, count), np.empty(CODECS[name]().nbytes(count), np.uint8)
    lost, kept, arrives = Array(np.zeros(count, np.float32)), np.zeros(count, np.float32), np.empty(count, np.float32)
    for turn in range(3):
        values = Array(drawn(count) + np.float32(turn))
        kept += values.values
        codec.encode(kept, bytes_)
        codec.decode(bytes_, arrives)
        kept -= arrives
        before = values.values.copy()
        device.encode(name, values, message, lost, spreads, STREAM)
        settle()
        np.testing.assert_array_equal(message.values, bytes_)
        np.testing.assert_array_equal(lost.values, kept)
        np.testing.assert_array_equal(values.values, arrives if spreads else before)
    assert kept.any()


def test_there_are_threads_for_every_element_and_a_warp_for_every_block(device: CudaDevice) -> None:
    grids: list[tuple[Any, ...]] = []
    device._functions.update({f"encode_{name}": lambda *given: grids.append(given[:2]) for name in CODECS})
    for count in (1, 8 * BLOCK, 8 * BLOCK + 1, BLOCKS * BLOCK, 1 << 22):
        for name in CODECS:
            device.encode(name, Array(np.zeros(count, np.float32)), message_of(name, count), None, False, STREAM)
    assert [grid for grid, _ in grids[2::3]] == [(1,), (1,), (2,), (BLOCKS // 8,), (BLOCKS,)]  # int8
    assert [grid for grid, _ in grids[::3]] == [(1,), (8,), (9,), (BLOCKS,), (BLOCKS,)]
    assert {threads for _, threads in grids} == {(THREADS,)}
    device._functions.clear()
