"""The kernels of device arrays, compiled for the host: numpy's numbers wherever their arrays begin and end."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from host_kernels import with_halves

from collectives.execution.device import kernels

SHIM = """
#include <math.h>
#define __global__
#define __device__
struct Place { unsigned x; };
static Place blockIdx, threadIdx, blockDim = {3}, gridDim = {2};
template <class T> static T __shfl_xor_sync(unsigned, T, int) { throw "test_codec_kernels.py runs these"; }
"""
PLACE = """
extern "C" void place(unsigned block, unsigned thread) { blockIdx.x = block; threadIdx.x = thread; }
extern "C" void flush(int on) {  // denormal numbers are zeros while a kernel runs, as CuPy has it compiled
#ifdef __SSE2__
  unsigned now = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(on ? now | 0x8040 : now & ~0x8040u);
#endif
}
"""
UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum}
LENGTHS = [0, 1, 3, 4, 16, 37, 128]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    source = with_halves(kernels.source())
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.cpp").write_text(SHIM + source + PLACE)
    command = ["g++", "-shared", "-fPIC", "-O1", "-std=c++17", "-ffp-contract=off", "kernels.cpp", "-o", "kernels.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernels.so"))


def launch(library, name, *arguments):
    """Run a kernel with two blocks of three threads, one after the other."""
    for block in range(2):
        for thread in range(3):
            library.place(block, thread)
            library.flush(1)
            getattr(library, name)(*arguments)
            library.flush(0)


def random(rng, length, dtype, offset):
    """Return numbers that begin `offset` elements behind a boundary of 64 bytes."""
    room = np.zeros(length + 64 + offset, dtype)
    first = -room.ctypes.data % 64 // room.itemsize + offset
    room[first : first + length] = rng.integers(-50, 50, length)
    return room[first : first + length]


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.parametrize("dtype", kernels.NAMES)
@pytest.mark.parametrize("op", UFUNCS)
def test_two_arrays_are_joined(library, op, dtype):
    rng = np.random.default_rng(1)
    for length in LENGTHS:
        for offsets in ((0, 0, 0), (1, 1, 1), (0, 0, 1), (8, 0, 16)):
            target, source, arrived = (random(rng, length, dtype, offset) for offset in offsets)
            want = UFUNCS[op](source, arrived)
            launch(library, f"{op}_{dtype}", *map(pointer, (target, source, arrived)), ctypes.c_uint64(length))
            np.testing.assert_array_equal(target, want)
            want = UFUNCS[op](source, arrived)
            launch(library, f"{op}_{dtype}", *map(pointer, (source, source, arrived)), ctypes.c_uint64(length))
            np.testing.assert_array_equal(source, want)


@pytest.mark.parametrize("dtype", kernels.NAMES)
@pytest.mark.parametrize("op", UFUNCS)
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_a_slice_of_all_is_joined_and_written_to_all(library, op, dtype, ranks):
    rng = np.random.default_rng(2)
    for start, stop in ((0, 0), (0, 64), (64, 128), (64, 127), (3, 90)):
        for offset in (0, 1, 16):
            sources = [random(rng, 128, dtype, offset) for _ in range(ranks)]
            targets = [sources[0], random(rng, 128, dtype, 0)]
            want = [target.copy() for target in targets]
            for result in want:
                result[start:stop] = UFUNCS[op].reduce([source[start:stop] for source in sources])
            run_all(library, f"all_{op}_{dtype}", targets, sources, start, stop, 1)
            np.testing.assert_array_equal(targets, want)


def test_a_mean_of_half_precision_is_rounded_once(library):
    sources = [np.random.default_rng(rank).standard_normal(128).astype(np.float16) for rank in range(3)]
    target = np.zeros(128, np.float16)
    run_all(library, "all_sum_float16", [target], sources, 0, 128, 3)
    wide = [source.astype(np.float32) for source in sources]
    np.testing.assert_array_equal(target, ((wide[0] + wide[1] + wide[2]) / np.float32(3)).astype(np.float16))


def run_all(library, name, targets, sources, start, stop, divisor):
    tables = [(ctypes.c_void_p * len(arrays))(*(x.ctypes.data for x in arrays)) for arrays in (targets, sources)]
    part = ctypes.c_uint64(start), ctypes.c_uint64(stop)
    launch(library, name, tables[0], len(targets), tables[1], len(sources), *part, divisor)


def test_sums_differ_from_the_hosts_by_less_than_the_smallest_normal_number(library):
    rng = np.random.default_rng(2)
    small = np.finfo(np.float32).tiny
    source, arrived = (np.asarray(rng.uniform(-4, 4, 37) * small, np.float32) for _ in range(2))
    target = np.empty_like(source)
    launch(library, "sum_float32", *map(pointer, (target, source, arrived)), ctypes.c_uint64(37))
    far = np.abs(target.astype(np.float64) - (source.astype(np.float64) + arrived))
    assert far.max() <= 2 * small  # each of the two numbers, or their sum, may count as zero
    normal = (np.abs(source) >= small) & (np.abs(arrived) >= small) & (np.abs(source + arrived) >= small)
    assert normal.any() and (target[normal] == (source + arrived)[normal]).all()
