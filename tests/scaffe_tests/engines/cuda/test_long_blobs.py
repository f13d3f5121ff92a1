"""Kernels over more than 2^32 elements: the last rows of a long blob get what a blob of these rows alone gets.

The long blobs' memory exists where it is touched alone, and the kernels' loops begin at the last rows.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from host_kernels import TYPES, Kernel, RawModule

from scaffe.engines.cuda.launcher import FLAGS, FOLDER, divisor, source

CHANNELS, ROWS = 5, 8
LAST = ROWS * CHANNELS  # elements that the kernels compute
COUNT = (1 << 32) // CHANNELS * CHANNELS + 2 * LAST  # whole rows; all that are computed lie behind element 2^32
AT_THE_END = (
    "#undef EACH\n#define EACH(i, count) for (Index i = count - {} + threadIdx.x; i < count; i += blockDim.x)\n"
)
UNRESERVED = getattr(mmap, "MAP_NORESERVE", 0x4000)  # of Linux; the module of an older Python lacks it


def kernel(file: str, name: str) -> Kernel:
    """Return a kernel whose loop computes the last elements alone."""
    common = (FOLDER / "common.cu").read_text()
    code = source(file).replace(common, common + AT_THE_END.format(LAST))
    found: Kernel = RawModule(code, FLAGS).get_function(name)
    return found


def launch(kernel: Kernel, *arguments: Any) -> None:
    """Run one block of a kernel."""
    held = [
        np.array(one.ctypes.data, np.uint64) if kind.endswith("*") else np.array(one, TYPES[kind])
        for kind, one in zip(kernel.types, arguments, strict=True)
    ]
    given = (ctypes.c_void_p * len(held))(*[one.ctypes.data for one in held])
    kernel.function((ctypes.c_uint * 2)(1, 1), ctypes.c_uint(256), given)


def long(last: np.ndarray) -> np.ndarray:
    """Return COUNT elements that end with these; the others are 0, and take no memory."""
    memory = mmap.mmap(-1, COUNT * last.itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | UNRESERVED)
    array = np.frombuffer(memory, last.dtype)
    array[-last.size :] = last
    return array


@pytest.mark.parametrize(
    ("file", "name", "inputs", "rest"),
    [
        ("lrn_last", "lrn_2_bf16_1", 1, (0.5, 0.75, 2.0)),
        ("lrn_last", "lrn_back_2_bf16_1", 2, (0.5, 0.75, 2.0, 0.75)),
    ],
)
def test_lrn(file: str, name: str, inputs: int, rest: tuple[float, ...]) -> None:
    values = np.random.default_rng(1).normal(size=(inputs, LAST)).astype(np.float32)
    given = [(each.view(np.uint32) >> 16).astype(np.uint16) for each in values]  # bfloat16
    results = []
    for arrays in (given, [long(each) for each in given]):
        out = np.zeros(LAST, np.uint16) if arrays is given else long(np.zeros(LAST, np.uint16))
        launch(kernel(file, name), out.size, *arrays, out, CHANNELS, divisor(CHANNELS), *rest)
        results.append(out[-LAST:].copy())
    assert results[0].any() and np.array_equal(*results)


def test_a_bias() -> None:
    bias = np.arange(CHANNELS, dtype=np.float32)
    maps = long(np.zeros(LAST, np.uint16))
    launch(kernel("rows", "finish_bf16_1"), COUNT, maps, bias, CHANNELS, divisor(CHANNELS), 0)
    found = (maps[-LAST:].astype(np.uint32) << 16).view(np.float32).reshape(ROWS, CHANNELS)
    assert np.array_equal(found, np.tile(bias, (ROWS, 1)))
