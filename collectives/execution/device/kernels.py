"""The kernels of device arrays: CUDA C++ without headers, compiled by NVRTC at a process's first use.

Names are OP_TYPE for target = source OP arrived, all_OP_TYPE for the slices of a node, divide_TYPE. Elements are
joined in the same order and types as on the host, and so give the same bits: float16 in float32; max and min are NaN
if either operand is. Denormal float32 numbers alone count as zero, since CuPy adds -ftz=true to all options. Where all
pointers are aligned, each thread moves 16 bytes at a time; fewer leave memory bandwidth unused.
"""

from __future__ import annotations

from collectives.execution.device import codec_kernels

NAMES = {"float16": "half", "float32": "float", "float64": "double", "int32": "int", "int64": "long long"}
OPERATIONS = ("sum", "max", "min")
FLAGS = ("--std=c++17", "--fmad=false")

COMMON = r"""
typedef unsigned long long size_type;
struct half { unsigned short bits; };

template <class T> struct wide { typedef T type; };
template <> struct wide<half> { typedef float type; };

template <class T> __device__ T widen(T value) { return value; }
__device__ float widen(half value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}

template <class T> __device__ T narrow(typename wide<T>::type value) { return value; }
template <> __device__ half narrow<half>(float value) {
  half result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}

struct Sum { template <class T> static __device__ T join(T a, T b) { return a + b; } };
struct Max { template <class T> static __device__ T join(T a, T b) { return a > b || a != a ? a : b; } };
struct Min { template <class T> static __device__ T join(T a, T b) { return a < b || a != a ? a : b; } };

__device__ size_type first() { return blockIdx.x * (size_type)blockDim.x + threadIdx.x; }
__device__ size_type stride() { return gridDim.x * (size_type)blockDim.x; }

template <class T> struct alignas(16) pack {
  enum { size = 16 / sizeof(T) };
  T values[size];
};
template <class T> __device__ bool is_packed(const T* place) { return (size_type)place % sizeof(pack<T>) == 0; }
template <class T> __device__ const pack<T>* packs(const T* place) { return (const pack<T>*)place; }
template <class T> __device__ pack<T>* packs(T* place) { return (pack<T>*)place; }

template <class Op, class T> __device__ void join(T* target, const T* source, const T* arrived, size_type count) {
  size_type whole = is_packed(target) && is_packed(source) && is_packed(arrived) ? count / pack<T>::size : 0;
  for (size_type i = first(); i < whole; i += stride()) {
    pack<T> value = packs(source)[i], other = packs(arrived)[i];
    for (int j = 0; j < pack<T>::size; j++)
      value.values[j] = narrow<T>(Op::join(widen(value.values[j]), widen(other.values[j])));
    packs(target)[i] = value;
  }
  for (size_type i = whole * pack<T>::size + first(); i < count; i += stride())
    target[i] = narrow<T>(Op::join(widen(source[i]), widen(arrived[i])));
}

template <class Op, class T>
__device__ void join_all(T* const* targets, int to, const T* const* sources, int from, size_type start, size_type stop,
                         int divisor) {
  typedef typename wide<T>::type number;
  bool packed = true;
  for (int k = 0; k < to; k++) packed = packed && is_packed(targets[k] + start);
  for (int k = 0; k < from; k++) packed = packed && is_packed(sources[k] + start);
  size_type whole = packed ? (stop - start) / pack<T>::size : 0;
  for (size_type i = first(); i < whole; i += stride()) {
    number values[pack<T>::size];
    pack<T> read = packs(sources[0] + start)[i];
    for (int j = 0; j < pack<T>::size; j++) values[j] = widen(read.values[j]);
    for (int k = 1; k < from; k++) {
      read = packs(sources[k] + start)[i];
      for (int j = 0; j < pack<T>::size; j++) values[j] = Op::join(values[j], (number)widen(read.values[j]));
    }
    for (int j = 0; j < pack<T>::size; j++) read.values[j] = narrow<T>(divisor > 1 ? values[j] / divisor : values[j]);
    for (int k = 0; k < to; k++) packs(targets[k] + start)[i] = read;
  }
  for (size_type i = start + whole * pack<T>::size + first(); i < stop; i += stride()) {
    number value = widen(sources[0][i]);
    for (int k = 1; k < from; k++) value = Op::join(value, (number)widen(sources[k][i]));
    if (divisor > 1) value /= divisor;
    for (int k = 0; k < to; k++) targets[k][i] = narrow<T>(value);
  }
}

template <class T> __device__ void divide(T* values, size_type count, int divisor) {
  for (size_type i = first(); i < count; i += stride()) values[i] = narrow<T>(widen(values[i]) / divisor);
}
"""

JOIN = """
extern "C" __global__ void {op}_{name}({type}* target, const {type}* source, const {type}* arrived, size_type count) {{
  join<{rule}>(target, source, arrived, count);
}}
extern "C" __global__ void all_{op}_{name}({type}* const* targets, int to, const {type}* const* sources, int from,
                                           size_type start, size_type stop, int divisor) {{
  join_all<{rule}>(targets, to, sources, from, start, stop, divisor);
}}
"""

DIVIDE = """
extern "C" __global__ void divide_{name}({type}* values, size_type count, int divisor) {{
  divide(values, count, divisor);
}}
"""


def source() -> str:
    """Return the source text of all kernels."""
    pairs = [(op, name) for name in NAMES for op in OPERATIONS]
    joins = [JOIN.format(op=op, rule=op.title(), name=name, type=NAMES[name]) for op, name in pairs]
    divides = [DIVIDE.format(name=name, type=kind) for name, kind in NAMES.items() if name.startswith("float")]
    return "".join([COMMON, *joins, *divides, codec_kernels.source(OPERATIONS)])


def names() -> list[str]:
    """Return the names of all kernels."""
    pairs = [f"{op}_{name}" for name in NAMES for op in OPERATIONS]
    divides = [f"divide_{name}" for name in NAMES if name[0] == "f"]
    return [*pairs, *(f"all_{pair}" for pair in pairs), *divides, *codec_kernels.names(OPERATIONS)]
