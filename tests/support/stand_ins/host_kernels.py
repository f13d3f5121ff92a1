"""CUDA kernels compiled for the host, to run their arithmetic and the code that launches them without a GPU.

A stand-in for CuPy's RawModule: the same source, with shims for what CUDA adds to C++, through g++. Blocks come one
after the other, and so do a block's threads; where these wait for each other, they are fibers that take turns, and
each warp runs ahead of the others as far as it can without them.
Arguments are checked against what the kernel declares: a wrong type, or an array with gaps, fails. It says nothing of
a GPU's speed, its memory, its roundings of powf and expf, or what goes wrong where threads run at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from recorded import act, check_guard

SHIM = r"""
#include <math.h>
#include <setjmp.h>
#include <string.h>
#include <ucontext.h>
#define __global__
#define __device__
#define __shared__ static
#define __restrict__
#define __launch_bounds__(...)
struct Place { unsigned x, y, z; };
static Place blockIdx, threadIdx, blockDim, gridDim;
static inline int __float_as_int(float value) { int bits; __builtin_memcpy(&bits, &value, 4); return bits; }
static inline long long clock64() { static long long now; return now += 1000; }
static inline float __int_as_float(int bits) { float value; __builtin_memcpy(&value, &bits, 4); return value; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned places) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) result |= (unsigned)(both >> (places >> 4 * i & 7) * 8 & 255) << 8 * i;
  return result;
}
static inline float rsqrtf(float value) { return 1 / sqrtf(value); }

// A fiber is begun once, for all blocks, and from then on entered and left by jumps: these cost no call of the system.
struct Fiber { jmp_buf at; bool begun, done, waits; };  // waits: for the other warps
static Fiber fibers[256];
static char stacks[256][1 << 15];
static jmp_buf scheduler;
static unsigned now, left;
static void (*run)(void*);
static void* kernel_of_block;

static inline void __syncwarp() {
  if (!_setjmp(fibers[now].at)) _longjmp(scheduler, 1);
}
static inline void __syncthreads() {
  fibers[now].waits = true;
  __syncwarp();
}
static void run_fiber() {
  for (;;) {
    run(kernel_of_block);
    fibers[now].done = true;
    __syncwarp();
  }
}
static void begin() {
  static ucontext_t context;
  fibers[now].begun = true;
  getcontext(&context);
  context.uc_stack.ss_sp = stacks[now];
  context.uc_stack.ss_size = sizeof stacks[now];
  makecontext(&context, run_fiber, 0);
  setcontext(&context);
}
static void go_on() {
  if (_setjmp(scheduler)) return;
  if (fibers[now].begun) _longjmp(fibers[now].at, 1);
  begin();
}

// Run a warp until all its threads wait for the block or are done: the other warps are then behind it.
static void run_warp(unsigned first) {
  unsigned go = 0;
  for (unsigned i = 0; i < 32; i++) go += !(fibers[first + i].waits = fibers[first + i].done);
  while (go)
    for (now = first; now < first + 32; now++)
      if (!fibers[now].waits) {
        threadIdx = {now, 0, 0};
        go_on();
        left -= fibers[now].done;
        go -= fibers[now].waits |= fibers[now].done;
      }
}
static void run_block() {
  for (unsigned i = 0; i < blockDim.x; i++) fibers[i].done = false;
  for (left = blockDim.x; left;)
    for (unsigned first = 0; first < blockDim.x; first += 32) run_warp(first);
}

// A value of the thread whose number differs by these bits; all threads of the warp call it.
static char shuffled[256][8];
template <class Value> static Value __shfl_xor_sync(unsigned, Value value, int bits) {
  static_assert(sizeof value <= sizeof shuffled[0], "");
  __builtin_memcpy(shuffled[threadIdx.x], &value, sizeof value);
  __syncwarp();
  __builtin_memcpy(&value, shuffled[threadIdx.x ^ bits], sizeof value);
  __syncwarp();
  return value;
}

// As CuPy has kernels compiled: float32 numbers below the smallest normal one are zeros, read or written.
struct Flushing {
#ifdef __SSE2__
  unsigned before = __builtin_ia32_stmxcsr();
  Flushing() { __builtin_ia32_ldmxcsr(before | 0x8040); }
  ~Flushing() { __builtin_ia32_ldmxcsr(before); }
#endif
};

template <class Kernel> static void launch(const unsigned* grid, unsigned threads, bool waits, Kernel kernel) {
  Flushing here;
  run = [](void* given) { (*(Kernel*)given)(); };
  kernel_of_block = &kernel;
  gridDim = {grid[0], grid[1], 1}, blockDim = {threads, 1, 1};
  for (unsigned y = 0; y < grid[1]; y++)
    for (unsigned x = 0; x < grid[0]; x++) {
      blockIdx = {x, y, 0};
      if (waits)
        run_block();
      else
        for (unsigned i = 0; i < threads; i++) threadIdx = {i, 0, 0}, kernel();
    }
}
"""
CALL = """
extern "C" void host_{name}(const unsigned* grid, unsigned threads, void** given) {{
  launch(grid, threads, {waits}, [=] {{ {name}({casts}); }});
}}
"""
TYPES = {
    "float": np.float32, "double": np.float64, "bf16": np.uint16, "int": np.int32, "Index": np.int64,
    "word": np.uint64, "bool": np.bool_, "byte": np.uint8, "size_type": np.uint64,
}  # fmt: skip
HALF = {  # g++ has the conversions of half precision as a type of its own
    'asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));': "result = *(_Float16*)&value.bits;",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));': "*(_Float16*)&result.bits = value;",
}
FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w")
WAITS = re.compile(
    r"over_block|\bturn\(|\bChunk<\w+>\(|\.encode\("
)  # in the body of a kernel whose threads wait for each other
KERNEL = re.compile(r"extern \"C\" void (\w+)\s*\(([^)]*)\)")


def needs_compiler():
    if shutil.which("g++") is None:
        pytest.skip("no g++, which compiles the kernels for the host")


def with_halves(code):
    """Return the source of the collectives' kernels with conversions that g++ has."""
    for ours, theirs in HALF.items():
        assert ours in code
        code = code.replace(ours, theirs)
    return code


@cache
def built(code):
    """Return a source's kernels, each one's types of parameters by its name, and the library; made once a process."""
    needs_compiler()
    expanded = subprocess.run(
        ["g++", "-x", "c++", "-E", "-P", "-"], input=f"{SHIM}\n{code}", capture_output=True, text=True, check=True
    ).stdout
    kernels = {name: parameters(given) for name, given in KERNEL.findall(expanded)}
    bodies = {text.partition("(")[0]: text for text in expanded.split('extern "C" void ')[1:]}
    calls = [
        CALL.format(name=name, casts=", ".join(casts(types)), waits=int(bool(WAITS.search(bodies[name]))))
        for name, types in kernels.items()
    ]
    return kernels, ctypes.CDLL(str(compiled(SHIM + code + "".join(calls))))


class RawModule:
    """Kernels of one source."""

    folder = None  # of compiled sources, which processes and tests share

    def __init__(self, code, options):
        assert set(options) <= {"--std=c++17", "--fmad=false"}
        self.kernels, self.library = built(code)

    def get_function(self, name):
        return Kernel(getattr(self.library, f"host_{name}"), name, self.kernels[name])


class Kernel:
    """One kernel, called as CuPy's are."""

    def __init__(self, function, name, types):
        self.function, self.name, self.types = function, name, types

    def __call__(self, grid, block, arguments):
        assert len(grid) in (1, 2) and block == (256,) and min(grid) > 0
        assert len(arguments) == len(self.types), f"{self.name} takes {len(self.types)} arguments"
        held = [self.slot(*pair) for pair in zip(self.types, arguments, strict=True)]
        given = (ctypes.c_void_p * len(held))(*[one.ctypes.data for one in held])
        sides = (ctypes.c_uint * 2)(*grid, *[1] * (2 - len(grid)))
        arrays = [one.values for one in arguments if hasattr(one, "values")]

        def run():
            assert held
            self.function(sides, ctypes.c_uint(block[0]), given)
            for array in arrays:
                check_guard(array, f"kernel {self.name}")

        act(arrays, run)

    def slot(self, kind, argument):
        """Return memory that holds an argument as the kernel declares it."""
        if not kind.endswith("*"):
            assert argument.dtype == TYPES[kind], f"{self.name} takes {kind}, got {argument!r}"
            return np.array(argument)
        if isinstance(argument, np.uint64) and argument == 0:
            return np.zeros((), np.uint64)
        array = argument.values
        assert kind == "void*" or array.dtype == TYPES[kind[:-1]], f"{self.name}: {kind}, got {array.dtype}"
        assert array.flags.c_contiguous, f"{self.name}: {kind}, got an array with gaps"
        return np.array(array.ctypes.data, np.uint64)


def parameters(text):
    """Return the types of a kernel's parameters: float*, int, ..."""
    found = [re.fullmatch(r"(?:const )?(\w+)(\*?) ?(\*?)\w+", one.strip()) for one in text.split(",")]
    return [one.group(1) + (one.group(2) or one.group(3)) for one in found]


def casts(types):
    return [f"*({kind}*)given[{i}]" for i, kind in enumerate(types)]


def folder():
    """Return the folder of libraries: that of bytecode, which the processes of a run share, or else one of our own."""
    if sys.pycache_prefix is None:
        return Path(tempfile.mkdtemp(prefix="kernels"))
    shared = Path(sys.pycache_prefix) / "kernels"
    shared.mkdir(parents=True, exist_ok=True)
    return shared


def compiled(text):
    """Return the library that a source becomes, compiled once."""
    RawModule.folder = RawModule.folder or folder()
    path = RawModule.folder / f"{hashlib.sha256((repr(FLAGS) + text).encode()).hexdigest()[:16]}.so"
    if not path.exists():
        own = f"{path}.{os.getpid()}"
        run = subprocess.run(["g++", *FLAGS, "-", "-o", own], input=text, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        os.replace(own, path)  # other processes may be at it too
    return path
