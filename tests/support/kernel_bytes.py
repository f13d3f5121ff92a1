"""Bytes that a CUDA kernel reads and writes in its arrays, counted on the host: each access, byte by byte.

g++ compiles the kernels of host_kernels.py with calls in front of each access to memory, as for its thread sanitizer.
Here these calls count, for arrays that are watched. Registers, locals and shared memory are none of these. An access
that the compiler merges with another one, as CUDA's does, counts once.
"""

import ctypes
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import host_kernels
import numpy as np

GUARD = 64  # bytes before and behind each array, watched too
HOOKS = (
    r"""
#define QUIET __attribute__((no_sanitize("thread")))
struct Watched { char *begin, *end; unsigned *reads, *writes; };
static Watched watched[64];
static int watching;

QUIET static void note(void* place, unsigned long nbytes, bool writes) {
  char* at = (char*)place;
  for (Watched* one = watched; one < watched + watching; one++)
    for (unsigned long i = 0; i < nbytes; i++)
      if (at + i >= one->begin && at + i < one->end) (writes ? one->writes : one->reads)[at + i - one->begin]++;
}
extern "C" {
QUIET void watch(int count, const Watched* given) {
  for (watching = 0; watching < count; watching++) watched[watching] = given[watching];
}
void __tsan_init() {}
QUIET void __tsan_func_entry(void*) {}
QUIET void __tsan_func_exit(void*) {}
QUIET void __tsan_read_range(void* at, unsigned long nbytes) { note(at, nbytes, false); }
QUIET void __tsan_write_range(void* at, unsigned long nbytes) { note(at, nbytes, true); }
"""
    + "".join(
        f"QUIET void __tsan_{way}{nbytes}(void* at) {{ note(at, {nbytes}, {int('write' in way)}); }}\n"
        for nbytes in (1, 2, 4, 8, 16)
        for way in ("read", "write", "unaligned_read", "unaligned_write")
    )
    + "}\n"
)
# All calls are inlined, as CUDA's compiler does: g++ does not see what a call itself reads, or writes as its result.
SHIM = host_kernels.SHIM.replace("#define __device__\n", "#define __device__ __attribute__((always_inline))\n")
FLAGS = [flag for flag in host_kernels.FLAGS if flag != "-shared"] + ["-fno-semantic-interposition"]
TYPES = host_kernels.TYPES | {"half": np.uint16, "longlong": np.int64}


class Count(NamedTuple):
    """How often each byte of an array was read and written."""

    array: np.ndarray
    reads: np.ndarray
    writes: np.ndarray

    @property
    def nbytes(self):
        """Bytes read and written in all."""
        return int(self.reads.sum() + self.writes.sum())


class Room:
    """Arrays in memory of their own, which are watched."""

    def __init__(self):
        self.watched, self.held = [], []

    def array(self, values, shift):
        """Return an array with these values, that begins `shift` elements behind a boundary of 64 bytes."""
        room = np.zeros(values.nbytes + 4 * GUARD + shift * values.itemsize, np.uint8)
        first = -room.ctypes.data % 64 + GUARD + shift * values.itemsize
        array = room[first : first + values.nbytes].view(values.dtype)
        array[...] = values
        counts = [np.zeros(values.nbytes + 2 * GUARD, np.uint32) for _ in range(2)]
        ends = array.ctypes.data - GUARD, array.ctypes.data + values.nbytes + GUARD
        self.watched.append([*ends, *(one.ctypes.data for one in counts)])
        self.held.append(room)
        return Count(array, *(one[GUARD:-GUARD] for one in counts)), counts


@cache
def module(code):
    """Return the library of a source compiled for counting, and each kernel's parameters: names and types."""
    host_kernels.needs_compiler()
    command = ["g++", "-x", "c++", "-E", "-P", "-"]
    expanded = subprocess.run(command, input=SHIM + code, capture_output=True, text=True, check=True).stdout
    kernels = {
        name: [_parameter(one) for one in given.split(",")] for name, given in host_kernels.KERNEL.findall(expanded)
    }
    bodies = {text.partition("(")[0]: text for text in expanded.split('extern "C" void ')[1:]}
    calls = []
    for name, given in kernels.items():
        casts = ", ".join(f"*({kind}*)given[{i}]" for i, (_, kind) in enumerate(given))
        waits = int(bool(host_kernels.WAITS.search(bodies[name])))
        calls.append(host_kernels.CALL.format(name=name, casts=casts.replace("longlong", "long long"), waits=waits))
    return ctypes.CDLL(str(_compiled(SHIM + code + "".join(calls) + HOOKS))), kernels


def _compiled(text):
    """Return a library with the counting calls, which the compiler inserts and the linker finds in the text itself."""
    folder = Path(tempfile.mkdtemp(prefix="counted"))
    (folder / "kernels.cpp").write_text(text)
    for command in ([*FLAGS, "-fsanitize=thread", "-c", "kernels.cpp", "-o", "kernels.o"], ["-shared", "kernels.o"]):
        run = subprocess.run(["g++", *command], cwd=folder, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
    return folder / "a.out"


def _parameter(text):
    """Return a parameter's name and its type, without const and blanks."""
    kind, name = re.fullmatch(r"(.*?)(\w+)", re.sub(r"\bconst\b", "", text).strip(), re.DOTALL).groups()
    return name, re.sub(r"\s", "", kind)


def counted(code, kernel, blocks, given, unit=None, shift=0):
    """Run a kernel, and return the counts of its arrays by its parameters' names: a list for each.

    `given` has a value for each parameter: for a pointer the array's elements, as their number or as values, None for
    a null pointer, a list of them for a table of pointers. `unit` is the size of void's elements in bytes. Every second
    array begins `shift` elements behind a boundary.
    """
    library, kernels = module(code)
    room, counts, all_counts, slots = Room(), {}, [], []
    assert given.keys() == {name for name, _ in kernels[kernel]}, f"{kernel} takes {kernels[kernel]}"

    def place(name, kind, value):
        if value is None:
            return 0
        dtype = np.dtype(f"V{unit}" if kind == "void" else TYPES[kind])
        values = np.zeros(value, dtype) if isinstance(value, int) else np.asarray(value, dtype)
        count, whole = room.array(values, shift * (len(room.held) % 2))
        counts.setdefault(name, []).append(count)
        all_counts.append((name, whole))
        return count.array.ctypes.data

    for name, kind in kernels[kernel]:
        value = given[name]
        if kind.endswith("**"):
            value = np.array([place(name, kind[:-2], one) for one in value], np.uint64)
            room.held.append(value)
            slots.append(np.array(value.ctypes.data, np.uint64))
        elif kind.endswith("*"):
            slots.append(np.array(place(name, kind[:-1], value), np.uint64))
        else:
            slots.append(np.array(value, TYPES[kind]))
    _run(library, kernel, blocks, slots, room.watched)
    for name, whole in all_counts:
        assert not any(one[:GUARD].any() or one[-GUARD:].any() for one in whole), f"{kernel} passes the end of {name}"
    return counts


def _run(library, kernel, blocks, slots, watched):
    table = np.array(watched, np.uint64)
    library.watch(len(watched), ctypes.c_void_p(table.ctypes.data))
    sides = (ctypes.c_uint * 2)(*blocks, *[1] * (2 - len(blocks)))
    getattr(library, f"host_{kernel}")(
        sides, ctypes.c_uint(256), (ctypes.c_void_p * len(slots))(*[one.ctypes.data for one in slots])
    )
