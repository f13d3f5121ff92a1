"""A stand-in for a GPU: numpy arrays, but copies and joins happen late and out of step, one each time that it is asked.

Not a GPU's arithmetic, speed or errors: only its order of things. What is put on a stream is done when events are
polled, one piece of work of one stream, drawn at random, at a time; new memory holds rubbish. So whoever forgets to
wait, or waits for the wrong event, gets wrong numbers.
"""

from __future__ import annotations

import mmap
import os
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
from fake_nccl import FakeNccl

from collectives.codecs import CODECS
from collectives.errors import ArgumentError
from collectives.execution.device.device import HANDLE
from collectives.execution.operations import join, wide

RUBBISH = 0x5B


class FakeEvent:
    """Counts how often it was recorded, and how often that has come to pass."""

    def __init__(self, device):
        self.device, self.recorded, self.passed = device, 0, 0

    def record(self, stream):
        self.recorded += 1
        stream.work.append((None, 0, lambda ticket=self.recorded: setattr(self, "passed", ticket)))

    def Test(self):
        if self.passed < self.recorded:
            self.device.tick()
        return self.passed >= self.recorded

    def Wait(self):
        while not self.Test():
            pass


class FakeStream:
    """Work in order: an event and how often it must have been passed before, and what to do then."""

    def __init__(self, device):
        self.device, self.ptr = device, id(self)
        self.work: deque[tuple[FakeEvent | None, int, Callable[[], object]]] = deque()

    def __enter__(self):
        self.device.here.append(self)

    def __exit__(self, *error):
        self.device.here.pop()

    def wait_event(self, event):
        self.work.append((event, event.recorded, lambda: None))

    @property
    def can_go_on(self):
        return bool(self.work) and (self.work[0][0] is None or self.work[0][0].passed >= self.work[0][1])


class FakeArray:
    """An array that only its device reads and writes; `get` and `set` go over the caller's stream, as CuPy's do."""

    def __init__(self, device, values):
        self.device, self.values = device, values
        self.dtype, self.shape, self.size, self.nbytes = values.dtype, values.shape, values.size, values.nbytes
        self.strides = values.strides
        self.flags = SimpleNamespace(c_contiguous=values.flags.c_contiguous)

    @property
    def __cuda_array_interface__(self):
        return self.values.__array_interface__ | {"version": 3}

    def __len__(self):
        return len(self.values)

    def __getitem__(self, part):
        return FakeArray(self.device, self.values[part])

    def __setitem__(self, part, value):
        self.device.put(self.device.current(), self.values.__setitem__, part, value)

    def reshape(self, *shape):
        return FakeArray(self.device, self.values.reshape(*shape))

    def view(self, dtype):
        return FakeArray(self.device, self.values.view(dtype))

    def set(self, values):
        self.device.put(self.device.current(), np.copyto, self.values, np.array(values, self.dtype))

    def get(self):
        """Return the values when the caller's stream has come to its end, and no other."""
        event = self.device.event()
        event.record(self.device.current())
        event.Wait()
        return self.values.copy()


def close(maps, sharing):
    """Close the files of a device's memory, whose arrays may stay."""
    for _, handle in maps if sharing else ():
        os.close(int(handle.split()[1]))
    maps.clear()


class FakeDevice:
    """What collectives.execution.device.Device asks for; `sharing` says whether other processes may map its memory."""

    name = "a fake GPU"
    Stream = FakeStream

    def __init__(self, seed=0, sharing=True):
        self.random, self.sharing = random.Random(seed), sharing
        self.streams = [self.Stream(self)]
        self.threads = threading.local()
        self.maps, self.mapped = [], {}
        weakref.finalize(self, close, self.maps, sharing)
        self.identity = f"{os.getpid()}"
        self.has_nccl = True
        self.done = 0
        self.lock, self.failure = threading.Lock(), None

    def tick(self):
        """Do one piece of work of one stream, if any can go on; whichever thread asks."""
        if self.failure is not None:
            raise self.failure
        with self.lock:
            if streams := [stream for stream in self.streams if stream.can_go_on]:
                self.random.choice(streams).work.popleft()[2]()
                self.done += 1

    def put(self, stream, function, *arguments, **how):
        stream.work.append((None, 0, lambda: function(*arguments, **how)))

    def nccl(self):
        if not self.has_nccl:
            raise ArgumentError("NCCL can't be loaded")
        return FakeNccl(self)

    def holds(self, array):
        return isinstance(array, FakeArray) and array.device is self

    def empty(self, shape, dtype, stream=None):
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self.sharing:
            number = os.memfd_create("fake")
            os.truncate(number, max(nbytes, 1))
            memory = np.frombuffer(mmap.mmap(number, max(nbytes, 1)), np.uint8)
        else:
            number, memory = 0, np.empty(max(nbytes, 1), np.uint8)
        self.maps.append((memory, f"{os.getpid()} {number}".encode()))
        self.maps[-1][0][...] = RUBBISH
        return FakeArray(self, self.maps[-1][0][:nbytes].view(dtype).reshape(shape))

    def free(self):
        """Give back what this process has of all its arrays' memory; none is used any more."""
        close(self.maps, self.sharing)
        self.mapped.clear()

    def zeros(self, shape, dtype):
        array = self.empty(shape, dtype)
        array.values[...] = 0
        return array

    def pinned(self, nbytes):
        return np.full(nbytes, RUBBISH, np.uint8)

    def stream(self):
        self.streams.append(self.Stream(self))
        return self.streams[-1]

    def current(self):
        return self.here[-1] if self.here else self.streams[0]

    @property
    def here(self):
        """The streams that the calling thread has entered."""
        self.threads.__dict__.setdefault("here", [])
        return self.threads.here

    def event(self, patient=False):
        return FakeEvent(self)

    def copy(self, target, source, stream):
        self.put(stream, np.copyto, _bytes(target), _bytes(source))

    def join(self, op, target, source, arrived, stream):
        values = source.values, arrived.values
        self.put(stream, op.ufunc, *values, out=target.values, dtype=wide(target.dtype), casting="same_kind")

    def divide(self, values, ranks, stream):
        given = values.values
        self.put(stream, np.divide, given, ranks, out=given, dtype=wide(given.dtype), casting="same_kind")

    def encode(self, codec, values, message, lost, spreads, stream):
        made, given = self._coded(codec, message, values, *[] if lost is None else [lost]), values.values

        def work():
            kept = given if lost is None else np.add(lost.values, given, out=lost.values)
            made.encode(kept, message.values)
            arrives = np.empty_like(given)
            made.decode(message.values, arrives)
            if lost is not None:
                lost.values[...] -= arrives
            if spreads:
                given[...] = arrives

        self.put(stream, work)

    def decode(self, codec, message, values, stream):
        made = self._coded(codec, message, values)
        self.put(stream, made.decode, message.values, values.values)

    def decode_join(self, op, codec, target, source, message, stream):
        made = self._coded(codec, message, target, source)

        def work():
            numbers = np.empty_like(target.values)
            made.decode(message.values, numbers)
            op.ufunc(source.values, numbers, out=target.values)

        self.put(stream, work)

    def _coded(self, codec, message, *arrays):
        """Return a codec. Refuse what its kernels would read or write outside, or at an odd address."""
        made = CODECS[codec]()
        assert all(one.dtype == np.float32 and one.size == arrays[0].size for one in arrays), arrays
        assert message.dtype == np.uint8 and message.size == made.nbytes(arrays[0].size), message.size
        assert all(one.values.ctypes.data % 4 == 0 for one in (message, *arrays))
        return made

    def table(self, pointers, stream):
        table = []
        self.put(stream, table.extend, pointers)
        return table

    def join_all(self, op, targets, sources, part, dtype, stream):
        def work():
            blocks = [self._at(pointer, part.stop * dtype.itemsize).view(dtype)[part] for pointer in sources]
            result = np.empty(part.stop - part.start, dtype)
            join(op, blocks, len(blocks), result, np.empty(result.size, wide(dtype)))
            for pointer in targets:
                self._at(pointer, part.stop * dtype.itemsize).view(dtype)[part] = result

        self.put(stream, work)

    def copy_from(self, target, pointer, stream):
        self.put(stream, np.copyto, _bytes(target), self._at(pointer, target.nbytes))

    def copy_to(self, pointer, source, stream):
        self.put(stream, np.copyto, self._at(pointer, source.nbytes), _bytes(source))

    def export(self, array):
        where = array.values.__array_interface__["data"][0]
        for memory, handle in self.maps:
            offset = where - memory.__array_interface__["data"][0]
            if 0 <= offset < memory.size and self.sharing:
                return handle.ljust(HANDLE, b"\0"), offset
        raise ArgumentError("a fake that shares nothing")

    def open(self, handle):
        process, number = handle.rstrip(b"\0").split()
        with open(f"/proc/{int(process)}/fd/{int(number)}", "r+b") as file:
            memory = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        pointer = memory.__array_interface__["data"][0]
        self.mapped[pointer] = memory
        return pointer

    def close(self, pointer):
        del self.mapped[pointer]

    def _at(self, pointer, nbytes):
        """Return the bytes at a pointer, of this process's memory or of what it has mapped."""
        for memory in [*self.mapped.values(), *(memory for memory, _ in self.maps)]:
            offset = pointer - memory.__array_interface__["data"][0]
            if 0 <= offset < memory.size or (nbytes == 0 and offset == 0):
                return memory[offset : offset + nbytes]
        raise AssertionError(f"the device has no memory at {pointer:#x}")


def _bytes(array):
    values = getattr(array, "values", array)
    return values.reshape(-1).view(np.uint8)
