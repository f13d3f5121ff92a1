"""A stand-in for CuPy: arrays in this machine's memory that are as strict as CuPy's about what may meet them.

They refuse NumPy arrays in arithmetic, assignment and indexing, and to become one; NumPy's own functions work on them
where CuPy's protocols let them. The functions, and their arguments, are those that CuPy 14 has. It says nothing of a
GPU's errors, roundings and speed. What is computed is computed late, as recorded.py says.
"""

from __future__ import annotations

import ctypes
import operator
import os
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
from fake_cublas import FakeCublas
from fake_device import FakeDevice
from host_kernels import RawModule
from recorded import (
    CARD,
    HERE,
    OWNERS,
    Event,
    Stream,
    act,
    event_query,
    made,
    refuse,
    refuse_cublas,
    settle,
    take_memory,
    using_allocator,
)

from scaffe.devices.gpu import Gpu, choose
from scaffe.engines.cuda.cublas import Cublas

RUBBISH = -77
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
MAKERS = {"arange": {"dtype"}, "empty": {"dtype"}, "full": {"dtype"}, "zeros": {"dtype"}, "ones": {"dtype"}}


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
    _refuse(function, bared)
    out = given.get("out")
    out = out[0] if isinstance(out, tuple) else out
    if out is not None or function is np.copyto or getattr(function, "__name__", "") == "at":
        act([bare(arguments[0] if out is None else out)], lambda: function(*bared, **named))
        return out
    owner = getattr(function, "__self__", None)
    return wrap(made([*bared, owner], lambda: function(*bared, **named)))


def _refuse(function, arguments):
    """Do what CuPy does before some functions: refuse cuBLAS in a recording, and wait for what shapes depend on."""
    name = getattr(function, "__name__", "")
    vectors = name == "dot" and np.ndim(arguments[0]) == 1  # which CuPy multiplies and sums by kernels of its own
    if name in ("matmul", "dot", "einsum") and not vectors:
        refuse_cublas()
    if name in ("bincount", "nonzero"):
        settle()


class Array:
    """An array that lies, as far as its user can tell, on a device."""

    __hash__ = None

    def __init__(self, values):
        self.values = values
        while isinstance(values.base, np.ndarray):
            values = values.base
        OWNERS[values.ctypes.data] = values

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
        if out is None:
            settle()
            return self.values.copy()
        refuse()
        assert not blocking and (out.shape, out.dtype) == (self.shape, self.dtype)
        out[...], values = RUBBISH, self.values
        act([out], lambda: np.copyto(out, values))
        return out

    def set(self, values):
        refuse()
        assert type(values) is np.ndarray and (values.shape, values.dtype) == (self.shape, self.dtype)
        target, given = self.values, values.copy()
        act([target], lambda: np.copyto(target, given))

    def fill(self, value):
        self[...] = value

    def tolist(self):
        return self.get().tolist()

    def item(self):
        return self.get().item()

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __bool__(self):
        return bool(self.item())

    # What arrays are.

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index):
        place = bare(index)
        indices = place if isinstance(place, tuple) else (place,)
        if any(isinstance(one, np.ndarray) and one.dtype.kind == "b" for one in indices):
            settle()  # how many there are, is known on the device alone
        return wrap(made([self.values], lambda values=self.values: values[place]))

    def __setitem__(self, index, value):
        if not isinstance(value, (Array, *SCALARS)):
            raise TypeError(f"Unsupported type {type(value)}")
        place, given = bare(index), bare(value)
        act([self.values], lambda values=self.values: values.__setitem__(place, given))

    def __getattr__(self, name):
        if name in ("shape", "dtype", "size", "ndim", "nbytes", "itemsize", "flags", "strides"):
            return getattr(self.values, name)
        if name == "data":
            return SimpleNamespace(ptr=self.values.ctypes.data)
        if name == "T":
            return Array(self.values.T)
        if name in ("reshape", "transpose", "swapaxes", "astype", "view", "copy", "ravel", "squeeze", "take", "dot"):
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
        _refuse(function, [values])
        return wrap(made([], lambda: function(values, given)))

    def reflected(self, other):
        values, given = self.values, _operand(other)
        return wrap(made([], lambda: function(given, values)))

    def in_place(self, other):
        np_function, given, values = getattr(operator, f"i{name.strip('_')}"), _operand(other), self.values
        act([values], lambda: np_function(values, given))
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
    take_memory()
    return values if isinstance(values, Array) and dtype is None else Array(np.array(bare_or_host(values), dtype))


def bare_or_host(values):
    return values if isinstance(values, np.ndarray) else bare(values)


POOL = SimpleNamespace(total_bytes=lambda: 0, free_all_blocks=lambda: None)  # memory is not counted here
xp = SimpleNamespace(
    ndarray=Array,
    RawModule=RawModule,
    asarray=asarray,
    get_default_memory_pool=lambda: POOL,
    **{name: Ufunc(name) for name in UFUNCS},
    **{name: partial(call, getattr(np, name), keywords) for name, keywords in (KEYWORDS | MAKERS).items()},
)


class StrictDevice(FakeDevice):
    """The fake device of the collectives, over these arrays and CuPy's streams."""

    @staticmethod
    def Stream(device):
        return Stream(non_blocking=True)

    def __init__(self, seed=0, sharing=True):
        super().__init__(seed, sharing)
        CARD.random.seed(seed)

    @property
    def streams(self):
        return CARD.streams

    @streams.setter
    def streams(self, first):
        """Leave the first one out: CuPy has its own."""

    def tick(self):
        if self.failure is not None:
            raise self.failure
        before = CARD.done
        CARD.go_on()
        self.done += CARD.done - before

    def put(self, stream, function, *arguments, **how):
        stream.put(partial(function, *arguments, **how))

    def stream(self):
        return Stream(non_blocking=True)

    def current(self):
        return Stream.current()

    def _at(self, pointer, nbytes):
        return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(pointer), np.uint8)

    def holds(self, array):
        return isinstance(array, Array)

    def empty(self, shape, dtype, stream=None):
        return Array(np.full(shape, 7, dtype))

    def zeros(self, shape, dtype):
        return Array(np.zeros(shape, dtype))


class Device:
    """CuPy's."""

    def __init__(self, number):
        self.number = number

    def use(self):
        HERE.device = self.number

    def synchronize(self):
        refuse()
        CARD.finish()


xp.cuda = SimpleNamespace(
    Device=Device,
    Stream=Stream,
    Event=Event,
    get_current_stream=Stream.current,
    alloc_pinned_memory=bytearray,
    MemoryPool=lambda: SimpleNamespace(malloc="a pool of its own"),
    using_allocator=using_allocator,
    runtime=SimpleNamespace(eventQuery=event_query),
)
COMPUTES = Stream(non_blocking=True)  # a rank has one stream to compute on


class StrictGpu:
    """A scaffe.devices.gpu.Gpu whose arrays are these."""

    explain, use, wait, finish, late, place = Gpu.explain, Gpu.use, Gpu.wait, Gpu.finish, Gpu.late, Gpu.place
    number, bus, shared, free = 0, "0000:00:00.0", False, 1 << 30
    capability, model = 90, "a stand-in"

    def __init__(self, device=None):
        self.xp, self.device, self.stream = xp, device or StrictDevice(), COMPUTES
        self.libraries = {"cudnn": None, "cublas": Cublas(FakeCublas(), self)}
        self.use()

    def trim(self):
        pass

    def __str__(self):
        return "a stand-in for a GPU"


@cache
def a_gpu():
    """Return a stand-in for a GPU, or where SCAFFE_ON_GPU is 1 a real one, for tests that hold on both."""
    return choose("cuda") if os.environ.get("SCAFFE_ON_GPU") == "1" else StrictGpu()
