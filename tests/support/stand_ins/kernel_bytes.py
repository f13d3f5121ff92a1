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

from scaffe.engines.cuda.launcher import THREADS

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


class Arguments:
    """The arguments of a launch, and memory for its arrays, which is watched.

    Every second array, from the first on, begins `shift` elements behind a boundary of 64 bytes. `unit` is the size of
    void's elements in bytes.
    """

    def __init__(self, shift, unit):
        self.shift, self.unit = shift, unit
        self.counts, self.slots = {}, []  # counts by the parameters' names
        self._watched, self._held, self._guards = [], [], []

    def add(self, name, kind, value):
        """Add an argument of the type `kind`."""
        if kind.endswith("**"):
            table = np.array([self._place(name, kind[:-2], one) for one in value], np.uint64)
            self._held.append(table)
            self.slots.append(np.array(table.ctypes.data, np.uint64))
        elif kind.endswith("*"):
            self.slots.append(np.array(self._place(name, kind[:-1], value), np.uint64))
        else:
            self.slots.append(np.array(value, TYPES[kind]))

    def _place(self, name, kind, value):
        """Return the address of a new array with these values, or with so many zeros; 0 for None."""
        if value is None:
            return 0
        dtype = np.dtype(f"V{self.unit}" if kind == "void" else TYPES[kind])
        values = np.zeros(value, dtype) if isinstance(value, int) else np.asarray(value, dtype)
        shift = 0 if len(self._watched) % 2 else self.shift * dtype.itemsize
        room = np.zeros(values.nbytes + 4 * GUARD + shift, np.uint8)
        first = -room.ctypes.data % 64 + GUARD + shift
        array = room[first : first + values.nbytes].view(dtype)
        array[...] = values
        self._watch(name, array)
        self._held.append(room)
        return array.ctypes.data

    def _watch(self, name, array):
        begin, moved = array.ctypes.data, [np.zeros(array.nbytes + 2 * GUARD, np.uint32) for _ in range(2)]
        self._watched.append([begin - GUARD, begin + array.nbytes + GUARD, *(one.ctypes.data for one in moved)])
        self._guards += [(name, part) for one in moved for part in (one[:GUARD], one[-GUARD:])]
        self.counts.setdefault(name, []).append(Count(array, *(one[GUARD:-GUARD] for one in moved)))

    def run(self, library, kernel, blocks):
        """Run a kernel; an access beside one of the arrays fails."""
        table = np.array(self._watched, np.uint64)
        library.watch(len(table), ctypes.c_void_p(table.ctypes.data))
        sides = (ctypes.c_uint * 2)(*blocks, *[1] * (2 - len(blocks)))
        given = (ctypes.c_void_p * len(self.slots))(*[one.ctypes.data for one in self.slots])
        getattr(library, f"host_{kernel}")(sides, ctypes.c_uint(THREADS), given)
        for name, part in self._guards:
            assert not part.any(), f"{kernel} passes the end of {name}"


@cache
def module(code):
    """Return the library of a source compiled for counting, and each kernel's parameters: names and types."""
    host_kernels.needs_compiler()
    command = ["g++", "-x", "c++", "-E", "-P", "-"]
    expanded = subprocess.run(command, input=SHIM + code, capture_output=True, text=True, check=True).stdout
    found = host_kernels.KERNEL.findall(expanded)
    kernels = {name: [_parameter(one) for one in given.split(",")] for name, given in found}
    bodies = {text.partition("(")[0]: text for text in expanded.split('extern "C" void ')[1:]}
    calls = [_call(name, given, bodies[name]) for name, given in kernels.items()]
    return _loaded(SHIM + code + "".join(calls) + HOOKS), kernels


def _call(name, parameters, body):
    """Return the function that launches a kernel with pointers to its arguments."""
    casts = ", ".join(f"*({kind}*)given[{i}]" for i, (_, kind) in enumerate(parameters))
    waits = int(bool(host_kernels.WAITS.search(body)))
    return host_kernels.CALL.format(name=name, casts=casts.replace("longlong", "long long"), waits=waits)


def _loaded(text):
    """Return a library with the counting calls, which the compiler inserts and the linker finds in the text itself."""
    with tempfile.TemporaryDirectory(prefix="counted") as folder:
        (Path(folder) / "kernels.cpp").write_text(text)
        for command in (
            [*FLAGS, "-fsanitize=thread", "-c", "kernels.cpp", "-o", "kernels.o"],
            ["-shared", "kernels.o"],
        ):
            run = subprocess.run(["g++", *command], cwd=folder, capture_output=True, text=True)
            assert run.returncode == 0, run.stderr
        return ctypes.CDLL(f"{folder}/a.out")


def _parameter(text):
    """Return a parameter's name and its type, without const and blanks."""
    kind, name = re.fullmatch(r"(.*?)(\w+)", re.sub(r"\bconst\b", "", text).strip(), re.DOTALL).groups()
    return name, re.sub(r"\s", "", kind)


def counted(code, kernel, blocks, given, unit=None, shift=0):
    """Run a kernel, and return the counts of its arrays by its parameters' names: a list for each.

    `given` has a value for each parameter: for a pointer the array's elements, as their number or as values, None for
    a null pointer, a list of them for a table of pointers. `unit` and `shift` are those of Arguments.
    """
    library, kernels = module(code)
    assert given.keys() == {name for name, _ in kernels[kernel]}, f"{kernel} takes {kernels[kernel]}"
    arguments = Arguments(shift, unit)
    for name, kind in kernels[kernel]:
        arguments.add(name, kind, given[name])
    arguments.run(library, kernel, blocks)
    return arguments.counts
