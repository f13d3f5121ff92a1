"""A stand-in for cuDNN's frontend: exactly the calls that scaffe makes, over this machine's memory, by its own clock.

Every graph has the same few plans, each with its notes, workspace and seconds. Not the library's heuristics, speed, or
roundings; which graphs it takes, test_cuda_graphs.py asks the library itself.
"""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import fake_cublas
import numpy as np
from recorded import act, owner

NUMBERS = itertools.count()  # of stand-ins, so that none finds what was timed with another
WRITTEN = 0x5A  # into each byte of a workspace
NOTES = ("DOWN_CONVERT_INPUTS", "TENSOR_CORE", "REDUCED_PRECISION_REDUCTION", "NONDETERMINISTIC")


class cudnnGraphNotSupportedError(Exception):
    """What the library says of a graph or a plan that it has not."""


@dataclass(frozen=True)
class Engine:
    """A plan that every graph has."""

    name: str
    notes: tuple[str, ...] = ()
    nbytes: int = 0
    seconds: float = 1.0
    builds: bool = True
    fails: type[Exception] | None = None
    factor: float = 1.0  # of the right results
    loses_nan: bool = False  # whether its ReLU makes NaN 0


class Tensor:
    def __init__(self, dim=(), stride=(), data_type=None, uid=0, make=None):
        self.dim, self.stride, self.data_type, self.uid, self.make = list(dim), list(stride), data_type, uid, make

    def set_output(self, whether):
        assert whether
        return self

    def set_data_type(self, data_type):
        self.data_type = data_type
        return self

    def set_dim(self, dim):
        self.dim = dim
        return self

    def set_stride(self, stride):
        self.stride = stride
        return self

    def set_uid(self, uid):
        self.uid = uid
        return self

    def lying(self, pointers):
        """Return the array that lies at this tensor's pointer, a view."""
        kind = {"FLOAT": ctypes.c_float, "BFLOAT16": ctypes.c_uint16}[self.data_type]
        count = 1 + sum((size - 1) * step for size, step in zip(self.dim, self.stride, strict=True))
        memory = np.ctypeslib.as_array(ctypes.cast(pointers[self.uid], ctypes.POINTER(kind)), (count,))
        return np.lib.stride_tricks.as_strided(memory, self.dim, [step * memory.itemsize for step in self.stride])

    def read(self, pointers):
        if self.make:
            return self.make(pointers)
        array = self.lying(pointers)
        if self.data_type == "BFLOAT16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(np.float64)


def windows(images, kernel, out, stride, pad, dilation):
    """Iterate over the places in a kernel, with what of the padded images lies under each, as a view."""
    padded = np.zeros((*images.shape[:2], *(n + 2 * p for n, p in zip(images.shape[2:], pad, strict=True))))
    inner = (slice(None),) * 2 + tuple(slice(p, p + n) for n, p in zip(images.shape[2:], pad, strict=True))
    padded[inner] = images

    def each():
        for place in itertools.product(*map(range, kernel)):
            axes = zip(place, out, stride, dilation, strict=True)
            where = tuple(slice(k * d, k * d + s * (n - 1) + 1, s) for k, n, s, d in axes)
            yield place, padded[(slice(None), slice(None), *where)]

    return padded[inner], each()


class Graph:
    def __init__(self, fake, io_data_type, intermediate_data_type, compute_data_type, handle):
        assert intermediate_data_type == compute_data_type == "FLOAT" and handle == fake.handle
        self.fake, self.kind, self.unwanted, self.built = fake, io_data_type, set(), set()
        self.operands, self.result, self.rectifies = [], None, False

    def tensor(self, name, dim, stride, data_type, uid):
        self.operands.append(Tensor(dim, stride, data_type, uid))
        return self.operands[-1]

    def _convolved(self, kind, one, other, pre_padding, post_padding, stride, dilation):
        assert pre_padding == post_padding
        how = stride, pre_padding, dilation

        def make(pointers):
            return kind(one.read(pointers), other.read(pointers), self.result.dim, *how)

        self.result = Tensor(make=make)
        return self.result

    def conv_fprop(self, image, weight, **how):
        return self._convolved(correlated, image, weight, **how)

    def conv_dgrad(self, loss, filter, **how):
        return self._convolved(spread, loss, filter, **how)

    def conv_wgrad(self, image, loss, **how):
        return self._convolved(weighed, image, loss, **how)

    def bias(self, input, bias):
        inner = self.result
        self.result = Tensor(make=lambda pointers: inner.make(pointers) + bias.read(pointers))
        return self.result

    def relu(self, input):
        inner = self.result
        assert input is inner and len(self.operands) == 3, "the library has no plan for a ReLU without a bias"
        self.rectifies = True
        self.result = Tensor(make=lambda pointers: np.maximum(inner.make(pointers), 0))
        return self.result

    def validate(self):
        pass

    def build_operation_graph(self):
        kinds = {tensor.data_type for tensor in [*self.operands, self.result]}
        assert kinds == {self.kind}

    def create_execution_plans(self, heuristics):
        assert heuristics == ["A", "B", "FALLBACK"]
        if "everything" in self.unwanted or self.fake.refuses(self):
            raise cudnnGraphNotSupportedError("no engine proposed a plan")

    def deselect_numeric_notes(self, notes):
        self.unwanted.update(notes)

    def get_execution_plan_count(self):
        return len(self.fake.engines)

    def get_plan_name_at_index(self, index):
        return self.fake.engines[index].name

    def build_plan_at_index(self, index):
        engine = self.fake.engines[index]
        if self.unwanted.intersection(engine.notes) or not engine.builds:
            raise cudnnGraphNotSupportedError("Deselecting execution plan")
        self.built.add(index)

    def get_workspace_size_plan_at_index(self, index):
        assert index in self.built
        return self.fake.engines[index].nbytes

    def execute_plan_at_index(self, pointers, workspace, index, handle):
        assert index in self.built and handle == self.fake.handle and self.fake.stream is not None and workspace
        assert all(pointer % 16 == 0 for pointer in pointers.values())
        engine, result = self.fake.engines[index], self.result
        memory = _room(workspace, engine.nbytes)
        if engine.fails:
            raise engine.fails("CUDNN_STATUS_EXECUTION_FAILED")
        sides = next(tensor for tensor in [*self.operands, result] if tensor.uid in (1, 2))  # images or maps
        first = sides.stride[1] != 1
        self.fake.ran.append(f"{'first' if first else 'last'}{' with ReLU' if self.rectifies else ''} {engine.name}")
        self.fake.clock += engine.seconds * (1 if first else self.fake.last)
        kept = [owner(pointer) for pointer in pointers.values()]

        def compute(kept=kept):
            memory[...] = WRITTEN
            values = np.asarray(result.make(pointers) * engine.factor, np.float32)
            if self.rectifies and engine.loses_nan:
                values = np.nan_to_num(values, nan=0.0)
            out = result.lying(pointers)
            out[...] = fake_cublas.narrowed(values, out.dtype)

        act([], compute)


def _room(workspace, nbytes):
    """Return the bytes of a plan's workspace. On a device a plan writes over what lies behind one that is too small."""
    array = owner(workspace)
    memory = array.reshape(-1).view(np.uint8)[workspace - array.ctypes.data :]
    assert len(memory) >= nbytes, f"a plan needs a workspace of {nbytes} bytes, got {len(memory)}"
    return memory[:nbytes]


def _groups(kernel, images, maps):
    """Iterate over what of filters, channels of images and of maps belongs together."""
    filters, channels = kernel[:2]
    for g in range(images // channels):
        per = maps // (images // channels)
        yield slice(g * per, (g + 1) * per), slice(g * channels, (g + 1) * channels)


def correlated(images, kernel, shape, stride, pad, dilation):
    """Return the maps that filters find in images."""
    maps = np.zeros(shape)
    for of, ch in _groups(kernel.shape, images.shape[1], shape[1]):
        _, each = windows(images[:, ch], kernel.shape[2:], shape[2:], stride, pad, dilation)
        for place, under in each:
            maps[:, of] += np.einsum("nc...,fc->nf...", under, kernel[(of, slice(None), *place)])
    return maps


def spread(maps, kernel, shape, stride, pad, dilation):
    """Return the images over which filters, weighted by maps, are spread."""
    images = np.zeros(shape)
    for of, ch in _groups(kernel.shape, shape[1], maps.shape[1]):
        inner, each = windows(np.zeros_like(images[:, ch]), kernel.shape[2:], maps.shape[2:], stride, pad, dilation)
        for place, under in each:
            under += np.einsum("nf...,fc->nc...", maps[:, of], kernel[(of, slice(None), *place)])
        images[:, ch] = inner
    return images


def weighed(images, maps, shape, stride, pad, dilation):
    """Return the gradient of the filters between images and the gradient of maps."""
    kernel = np.zeros(shape)
    for of, ch in _groups(shape, images.shape[1], maps.shape[1]):
        _, each = windows(images[:, ch], shape[2:], maps.shape[2:], stride, pad, dilation)
        for place, under in each:
            axes = [0, *range(2, under.ndim)]
            kernel[(of, slice(None), *place)] += np.tensordot(maps[:, of], under, (axes, axes))
    return kernel


class FakeFrontend:
    """The module `cudnn`. `last`: how many times as long plans take whose operands have their channels last."""

    cudnnGraphNotSupportedError = cudnnGraphNotSupportedError
    data_type = SimpleNamespace(FLOAT="FLOAT", BFLOAT16="BFLOAT16")
    heur_mode = SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK")
    numerical_note = SimpleNamespace(**{name: name for name in NOTES})

    def __init__(self, *engines, last=2.0, refuses=lambda graph: False):
        self.engines, self.last, self.refuses = engines, last, refuses
        self.handle, self.stream, self.clock, self.ran = "handle", None, 0.0, []
        self.__version__ = f"stand-in {next(NUMBERS)}"

    def backend_version(self):
        return 92800

    def pygraph(self, **how):
        return Graph(self, **how)

    def set_stream(self, handle, stream):
        assert handle == self.handle
        self.stream = stream


class FakeEvent:
    """An event that takes the time of a stand-in's clock."""

    frontend: FakeFrontend

    def record(self):
        self.time = self.frontend.clock

    def synchronize(self):
        pass


def elapsed_time(start, stop):
    return (stop.time - start.time) * 1000
