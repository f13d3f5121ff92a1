"""A stand-in for CuPy: arrays in this machine's memory that are as strict as CuPy's about what may meet them.

They refuse NumPy arrays in arithmetic, assignment and indexing, and to become one; NumPy's own functions work on them
where CuPy's protocols let them. The functions, and their arguments, are those that CuPy 14 has. It says nothing of a
GPU's memory, errors, roundings, speed, or the order in which it does things.
"""

from __future__ import annotations

import ctypes
import operator
import os
from collections import deque
from contextlib import nullcontext
from functools import cache, partial
from types import SimpleNamespace

import fake_cublas
import numpy as np
from fake_device import FakeDevice, FakeStream
from host_kernels import RawModule
from recorded import Stream, act, made, refuse

from scaffe.devices.gpu import Gpu, choose

RUBBISH = -77
ON_THEIR_WAY = []  # copies to the host that nobody has marked yet, with their values
SCALARS = bool, int, float, np.generic
# Of CuPy's functions those that scaffe calls, and for some the keywords that CuPy knows.
UFUNCS = frozenset(
    """absolute add divide equal exp expm1 floor floor_divide greater greater_equal isfinite less less_equal log
log1p logaddexp logical_not matmul maximum minimum multiply negative not_equal power reciprocal sign sqrt square
subtract tanh true_divide invert bitwise_and bitwise_or bitwise_xor""".split()  # noqa: SIM905  a list of one a line says no more
)
KEYWORDS = {
    "argmin": {"axis", "out"},
    "argsort": {"axis", "kind"},
    "bincount": {"weights", "minlength"},
    "clip": {"out"},
    "concatenate": {"axis", "out"},
    "copyto": {"casting", "where"},
    "dot": {"out"},
    "einsum": set(),
    "empty_like": {"dtype", "shape"},
    "nonzero": set(),
    "sum": {"axis", "dtype", "out", "keepdims"},
    "take": {"axis", "out"},
    "take_along_axis": {"axis"},
    "where": set(),
    "zeros_like": {"dtype", "shape"},
}
MAKERS = {"arange": {"dtype"}, "empty": {"dtype"}, "zeros": {"dtype"}, "ones": {"dtype"}}


def wrap(values):
    """Return what NumPy gave as strict arrays."""
    if isinstance(values, (tuple, list)):
        return type(values)(wrap(one) for one in values)
    return Array(np.asarray(values)) if isinstance(values, (np.ndarray, np.generic)) else values


def bare(value):
    """Return an argument as NumPy takes it. Raise TypeError for one that CuPy does not."""
    if isinstance(value, Array):
        return value.values
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, (tuple, list)):
        return type(value)(map(bare, value))
    return value


def call(function, keywords, *arguments, **given):
    """Call NumPy's function on strict arrays."""
    if unknown := given.keys() - keywords:
        raise TypeError(f"{function.__name__} has no argument {' '.join(unknown)} in CuPy")
    bared, named = [*map(bare, arguments)], {name: bare(value) for name, value in given.items()}
    out = given.get("out")
    out = out[0] if isinstance(out, tuple) else out
    if out is not None or function is np.copyto or getattr(function, "__name__", "") == "at":
        act([bare(arguments[0] if out is None else out)], lambda: function(*bared, **named))
        return out
    owner = getattr(function, "__self__", None)
    return wrap(made([*bared, owner], lambda: function(*bared, **named)))


class Array:
    """An array that lies, as far as its user can tell, on a device."""

    __hash__ = None

    def __init__(self, values):
        self.values = values

    def __array__(self, *arguments, **options):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc, method, *inputs, **given):
        if method == "at" and ufunc.__name__ in ("add", "subtract", "maximum", "minimum"):
            return call(ufunc.at, set(), *inputs)
        if method != "__call__" or ufunc.__name__ not in UFUNCS:
            return NotImplemented
        return call(ufunc, {"out", "dtype", "casting"}, *inputs, **given)

    def __array_function__(self, function, types, arguments, given):
        if function.__name__ not in KEYWORDS:
            return NotImplemented
        return call(function, KEYWORDS[function.__name__], *arguments, **given)

    # Where the values meet the host, and MPI.

    @property
    def __cuda_array_interface__(self):
        return self.values.__array_interface__ | {"version": 3}

    @property
    def data(self):
        return SimpleNamespace(ptr=self.values.ctypes.data)

    def get(self, out=None, blocking=True):
        refuse()
        if out is None:
            return self.values.copy()
        assert not blocking and (out.shape, out.dtype) == (self.shape, self.dtype)
        out[...] = RUBBISH
        ON_THEIR_WAY.append((out, self.values.copy()))
        return out

    def set(self, values):
        refuse()
        assert type(values) is np.ndarray and (values.shape, values.dtype) == (self.shape, self.dtype)
        self.values[...] = values

    def tolist(self):
        refuse()
        return self.values.tolist()

    def item(self):
        refuse()
        return self.values.item()

    def __float__(self):
        refuse()
        return float(self.values.item())

    def __int__(self):
        refuse()
        return int(self.values.item())

    def __bool__(self):
        refuse()
        return bool(self.values)

    # What arrays are.

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return (wrap(part) for part in self.values)

    def __getitem__(self, index):
        place = bare(index)
        return wrap(made([self.values], lambda: self.values[place]))

    def __setitem__(self, index, value):
        if not isinstance(value, (Array, *SCALARS)):
            raise TypeError(f"Unsupported type {type(value)}")
        place, given = bare(index), bare(value)
        act([self.values], lambda: self.values.__setitem__(place, given))

    def __getattr__(self, name):
        if name in ("shape", "dtype", "size", "ndim", "nbytes", "itemsize", "flags", "strides"):
            return getattr(self.values, name)
        if name == "data":
            return SimpleNamespace(ptr=self.values.ctypes.data)
        if name == "T":
            return Array(self.values.T)
        if name in ("reshape", "transpose", "astype", "view", "copy", "ravel", "squeeze", "take", "dot"):
            return partial(self._call, name)
        if name in ("sum", "mean", "max", "min", "all", "any", "argmax", "argmin", "prod", "cumsum"):
            return partial(self._call, name)
        raise AttributeError(f"CuPy's arrays have no {name}, as far as this stand-in knows")

    def _call(self, name, *arguments, **given):
        return call(getattr(self.values, name), {"axis", "keepdims", "dtype", "out", "copy"}, *arguments, **given)


def _operator(name):
    function = getattr(operator, name)

    def straight(self, other):
        values, given = self.values, _operand(other)
        return wrap(made([], lambda: function(values, given)))

    def reflected(self, other):
        values, given = self.values, _operand(other)
        return wrap(made([], lambda: function(given, values)))

    def in_place(self, other):
        np_function, given, values = getattr(operator, f"i{name.strip('_')}"), _operand(other), self.values
        self.values = act([values], lambda: np_function(values, given))
        return self

    return straight, reflected, in_place


def _operand(value):
    if not isinstance(value, (Array, *SCALARS)):
        raise TypeError(f"Unsupported type {type(value)}")
    return bare(value)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "matmul"):
    _straight, _reflected, _in_place = _operator(_name)
    _short = _name.strip("_")
    setattr(Array, f"__{_short}__", _straight)
    setattr(Array, f"__r{_short}__", _reflected)
    setattr(Array, f"__i{_short}__", _in_place)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Array, f"__{_name}__", _operator(_name)[0])


def _unary(name):
    function = getattr(operator, name)
    return lambda self: wrap(made([], lambda values=self.values: function(values)))


for _name in ("neg", "invert", "abs"):
    setattr(Array, f"__{_name}__", _unary(_name))


class Ufunc:
    """One of CuPy's ufuncs, with `at`."""

    def __init__(self, name):
        self.function = getattr(np, name)

    def __call__(self, *arguments, **given):
        return call(self.function, {"out", "dtype", "casting"}, *arguments, **given)

    def at(self, *arguments):
        return call(self.function.at, set(), *arguments)


def asarray(values, dtype=None):
    """Bring values to the device, as the one function that takes NumPy's arrays."""
    if isinstance(values, np.ndarray):
        refuse()
    return values if isinstance(values, Array) and dtype is None else Array(np.array(bare_or_host(values), dtype))


def bare_or_host(values):
    return values if isinstance(values, np.ndarray) else bare(values)


xp = SimpleNamespace(
    ndarray=Array,
    RawModule=RawModule,
    asarray=asarray,
    **{name: Ufunc(name) for name in UFUNCS},
    **{name: partial(call, getattr(np, name), keywords) for name, keywords in (KEYWORDS | MAKERS).items()},
)


class Work(deque):
    """What a stream has to do: where the calling thread computes on it, done at once, after what it waits for."""

    def __init__(self, stream):
        self.stream = stream

    def append(self, piece):
        if self.stream is not self.stream.device.current():
            return super().append(piece)
        event, times, do = piece
        while self or (event is not None and event.passed < times):
            self.stream.device.tick()
        do()


class StrictStream(FakeStream):
    """A stream that computes as soon as it is asked to."""

    def __init__(self, device):
        super().__init__(device)
        self.work = Work(self)


class StrictDevice(FakeDevice):
    """The fake device of the collectives, over these arrays: computing is done at once, communication late."""

    Stream = StrictStream

    def _at(self, pointer, nbytes):
        return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(pointer), np.uint8)

    def holds(self, array):
        return isinstance(array, Array)

    def empty(self, shape, dtype, stream=None):
        return Array(np.full(shape, 7, dtype))

    def zeros(self, shape, dtype):
        return Array(np.zeros(shape, dtype))


class Event:
    """CuPy's event, recorded on the current stream."""

    def __init__(self, disable_timing=False):
        self.arrivals = []

    def record(self):
        self.arrivals = [*ON_THEIR_WAY]
        ON_THEIR_WAY.clear()

    def synchronize(self):
        for out, values in self.arrivals:
            out[...] = values
        self.arrivals = []


xp.cuda = SimpleNamespace(
    **vars(fake_cublas.cuda),
    Stream=Stream,
    Event=Event,
    get_current_stream=Stream.current,
    alloc_pinned_memory=bytearray,
    MemoryPool=lambda: SimpleNamespace(malloc=None),
    using_allocator=lambda allocator: nullcontext(),
)


class StrictGpu:
    """A scaffe.devices.gpu.Gpu whose arrays are these."""

    explain = Gpu.explain
    number, bus, shared, free = 0, "0000:00:00.0", False, 1 << 30
    capability, model = 90, "a stand-in"

    def __init__(self, device=None):
        self.xp, self.device = xp, device or StrictDevice()
        self.libraries = {"cudnn": None}

    def use(self):
        pass

    def wait(self):
        pass

    def trim(self):
        pass

    def late(self, count):
        return Gpu.late(self, count)

    def place(self, array):
        return array.data.ptr

    def __str__(self):
        return "a stand-in for a GPU"


@cache
def a_gpu():
    """Return a stand-in for a GPU, or where SCAFFE_ON_GPU is 1 a real one, for tests that hold on both."""
    return choose("cuda") if os.environ.get("SCAFFE_ON_GPU") == "1" else StrictGpu()
