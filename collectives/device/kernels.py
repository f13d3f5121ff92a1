"""The kernels of device arrays, CUDA C++ that needs no header; NVRTC compiles them when a process first uses them.

Names: OP_TYPE for target = source OP arrived, all_OP_TYPE for the slices of a node, divide_TYPE. Elements are joined in
the same order and types as on the host, to give the same bits: float16 in float32, max and min are NaN if either is.
"""

from __future__ import annotations

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

// 16 bytes, which a thread moves at once: else too few of them are under way to keep the memory busy.
template <class T> struct alignas(16) Pack { enum { width = 16 / sizeof(T) }; T at[width]; };
template <class T> __device__ bool for_packs(const T* array) { return (size_type)array % 16 == 0; }

template <class Op, class T> __device__ void join(T* target, const T* source, const T* arrived, size_type count) {
  const size_type width = Pack<T>::width;
  size_type packs = for_packs(target) && for_packs(source) && for_packs(arrived) ? count / width : 0;
  for (size_type i = first(); i < packs; i += stride()) {
    Pack<T> a = ((const Pack<T>*)source)[i], b = ((const Pack<T>*)arrived)[i];
    for (int k = 0; k < width; k++) a.at[k] = narrow<T>(Op::join(widen(a.at[k]), widen(b.at[k])));
    ((Pack<T>*)target)[i] = a;
  }
  for (size_type i = packs * width + first(); i < count; i += stride())
    target[i] = narrow<T>(Op::join(widen(source[i]), widen(arrived[i])));
}

// Element or pack i of all, as array type A has them.
template <class Op, class T, class A>
__device__ void join_each(T* const* targets, int to, const T* const* sources, int from, size_type i, int divisor) {
  typename wide<T>::type values[sizeof(A) / sizeof(T)];
  for (int s = 0; s < from; s++) {
    A arrived = ((const A*)sources[s])[i];
    for (int k = 0; k < sizeof(A) / sizeof(T); k++) {
      typename wide<T>::type value = widen(((const T*)&arrived)[k]);
      values[k] = s ? Op::join(values[k], value) : value;
    }
  }
  A result;
  for (int k = 0; k < sizeof(A) / sizeof(T); k++)
    ((T*)&result)[k] = narrow<T>(divisor > 1 ? values[k] / divisor : values[k]);
  for (int t = 0; t < to; t++) ((A*)targets[t])[i] = result;
}

template <class Op, class T>
__device__ void join_all(T* const* targets, int to, const T* const* sources, int from, size_type start, size_type stop,
                         int divisor) {
  const size_type width = Pack<T>::width;
  bool packed = true;
  for (int s = 0; s < from; s++) packed = packed && for_packs(sources[s]);
  for (int t = 0; t < to; t++) packed = packed && for_packs(targets[t]);
  size_type begin = (start + width - 1) / width, end = stop / width;  // the packs that lie wholly inside
  if (!packed || begin > end) begin = end = (stop + width - 1) / width;
  size_type low = begin * width < stop ? begin * width : stop, high = end * width > start ? end * width : start;
  for (size_type i = start + first(); i < low; i += stride())
    join_each<Op, T, T>(targets, to, sources, from, i, divisor);
  for (size_type i = begin + first(); i < end; i += stride())
    join_each<Op, T, Pack<T> >(targets, to, sources, from, i, divisor);
  for (size_type i = high + first(); i < stop; i += stride())
    join_each<Op, T, T>(targets, to, sources, from, i, divisor);
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
    """Return all kernels."""
    pairs = [(op, name) for name in NAMES for op in OPERATIONS]
    joins = [JOIN.format(op=op, rule=op.title(), name=name, type=NAMES[name]) for op, name in pairs]
    divides = [DIVIDE.format(name=name, type=kind) for name, kind in NAMES.items() if name.startswith("float")]
    return "".join([COMMON, *joins, *divides])


def names() -> list[str]:
    """Return the names of all kernels."""
    pairs = [f"{op}_{name}" for name in NAMES for op in OPERATIONS]
    return [*pairs, *(f"all_{pair}" for pair in pairs), *(f"divide_{name}" for name in NAMES if name[0] == "f")]
