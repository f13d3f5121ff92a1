"""The kernels of device arrays compile, all of them, by NVIDIA's compiler; no GPU is needed for that."""

import re

import numpy as np
import nvrtc
import pytest
from host_kernels import RawModule
from strict_arrays import Array

from collectives.device import kernels
from collectives.operations import OPERATIONS, TYPES

ARCHITECTURE = "sm_80"  # the oldest that is of interest; newer ones take all that it does


@pytest.fixture(scope="module")
def compiled():
    """What the compiler says of all kernels, and their code."""
    return nvrtc.compiled(nvrtc.find(), kernels.source(), ARCHITECTURE, kernels.FLAGS)


def test_every_kernel_compiles_without_a_warning(compiled):
    log, code = compiled
    assert log == ""
    assert [name for name in kernels.names() if f".entry {name}(" not in code] == []


def test_half_precision_is_added_in_single(compiled):
    body = compiled[1].partition(".entry sum_float16(")[2].partition("ret;")[0]
    assert sorted({"cvt.f32.f16", "add.rn.f32", "cvt.rn.f16.f32"} - set(body.split())) == []


def test_there_is_a_kernel_for_every_operation_and_type():
    pairs = {f"{op.name}_{dtype}" for op in OPERATIONS.values() for dtype in TYPES if not op.divided}
    divided = {f"divide_{dtype}" for dtype in TYPES if dtype.kind == "f"}
    assert {*pairs, *(f"all_{pair}" for pair in pairs), *divided} == set(kernels.names())


def test_the_reduces_addition_moves_16_bytes_at_once(compiled):
    for name in ("sum_float32", "all_sum_float32"):
        body = compiled[1].partition(f".entry {name}(")[2].partition("\n}")[0]
        assert re.search(r"ld\.global\S*\.v4\.", body) and re.search(r"st\.global\S*\.v4\.", body), name


ON_HOST = """
extern "C" __global__ void join_{name}({type}* target, const {type}* source, const {type}* arrived, size_type count) {{
  join<Max>(target, source, arrived, count);
}}
extern "C" __global__ void all_{name}({type}* one, {type}* other, const {type}* first, const {type}* second,
                                      const {type}* third, size_type start, size_type stop, int divisor) {{
  {type}* targets[] = {{one, other}};
  const {type}* sources[] = {{first, second, third}};
  join_all<Sum>(targets, 2, sources, 3, start, stop, divisor);
}}
"""


@pytest.fixture(scope="module")
def on_host():
    """The same source compiled for the host, half precision, whose conversions are a GPU's instructions, aside."""
    without = re.sub(r"asm\(.*?\);", "", kernels.COMMON)
    types = {"float32": "float", "float64": "double", "int32": "int"}
    return RawModule(without + "".join(ON_HOST.format(name=n, type=t) for n, t in types.items()), kernels.FLAGS)


def at(offset, values):
    """Return the values in an array that begins so many elements after a multiple of 16 bytes."""
    room = np.zeros(values.size + 32, values.dtype)
    begin = -room.ctypes.data % 16 // values.itemsize + offset
    room[begin : begin + values.size] = values
    return Array(room[begin : begin + values.size])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("offsets", [(0, 0, 0), (1, 1, 1), (0, 1, 0), (0, 0, 3)])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 1000, 5001])
def test_whatever_the_length_and_place_all_elements_are_joined(on_host, dtype, offsets, count):
    a, b = (np.random.default_rng(i).integers(-99, 99, count).astype(dtype) for i in range(2))
    if dtype != "int32":
        a[0] = np.nan
    arrays = [at(offset, values) for offset, values in zip(offsets, (a * 0, a, b), strict=True)]
    on_host.get_function(f"join_{dtype}")((2,), (256,), (*arrays, np.uint64(count)))
    np.testing.assert_array_equal(arrays[0].values, np.maximum(a, b))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize(("start", "stop"), [(0, 999), (1, 2), (1, 7), (4, 8), (3, 998), (5, 5), (8, 11)])
def test_a_slice_of_all_is_joined_and_nothing_beside_it(on_host, dtype, offset, start, stop):
    values = [np.random.default_rng(i).integers(-99, 99, 999).astype(dtype) for i in range(5)]
    targets, sources = [at(0, each) for each in values[:2]], [at(offset, each) for each in values[2:]]
    part = np.uint64(start), np.uint64(stop), np.int32(3)
    on_host.get_function(f"all_{dtype}")((2,), (256,), (*targets, *sources, *part))
    for before, target in zip(values[:2], targets, strict=True):
        before[start:stop] = (sum(each[start:stop] for each in values[2:]) / 3).astype(dtype)
        np.testing.assert_array_equal(target.values, before)
