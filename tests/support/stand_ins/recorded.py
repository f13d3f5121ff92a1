"""CUDA's streams, events and graphs as far as their order goes, for tests on the host.

What is put on a stream is done late: one piece of one stream, drawn at random, each time that the host asks, so that
streams are out of step with the host and with each other. A stream that records keeps what is put on it, and refuses
what CUDA and CuPy refuse there. A thread other than the main one that has not entered a stream is refused.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections import deque
from contextlib import contextmanager
from itertools import count

import numpy as np

RUBBISH = 7e16
MOST = 100  # pieces of work that are done from one poll to the next
CAPTURING = "the current stream is capturing, so synchronous API calls are disallowed"
NO_CUBLAS = "calling cuBLAS API during stream capture is currently unsupported"
HERE = threading.local()  # of a thread: the streams of its blocks, the device in use, the allocator

GUARD, GUARD_BYTE = 4096, 0xA5  # bytes behind an array, and their value
GUARDED: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()  # arrays' memory, by address
OWNERS: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()  # of memory, by address


def owner(pointer):
    """Return the array whose memory a pointer is in, which work that has the pointer alone keeps."""
    found = (a for start, a in list(OWNERS.items()) if start <= pointer < start + max(1, a.nbytes))
    array = next(found, None)
    assert array is not None, f"no array has memory at {pointer:#x}"
    return array


class Card:
    """The streams' work, and how often the host waited for it: `waits` holds what `put` was when each was put."""

    def __init__(self):
        self.random, self.lock = random.Random(0), threading.RLock()
        self.known, self.put, self.done, self.waits = [], 0, 0, []

    @property
    def streams(self):
        """The streams that are still in use, in their order."""
        return [stream for stream in (one() for one in self.known) if stream is not None]

    def tick(self):
        """Do one piece of work of one stream, if any can go on; whichever thread asks."""
        with self.lock, np.errstate(all="ignore"):
            if streams := [stream for stream in self.streams if stream.can_go_on]:
                self.random.choice(streams).work.popleft()[2]()
                self.done += 1

    def go_on(self):
        """Do a few pieces of work, as many as chance has it, as a host that polls may find that many done."""
        for _ in range(self.random.randrange(1, MOST)):
            self.tick()

    def finish(self, streams=None):
        """Do all work of some streams, or of all."""
        while any(stream.work for stream in (self.streams if streams is None else streams)):
            self.tick()


CARD = Card()


class Tape:
    """A recording: work that is put on a stream each time it is launched."""

    def __init__(self):
        self.works = []

    def launch(self, stream=None):
        for work in self.works:
            (stream or Stream.current()).put(work)


class Stream:
    """CuPy's: the end of a with block goes back to the stream of the block around it, whatever was put to use."""

    numbers = count(1)

    def __init__(self, non_blocking=False):
        self.non_blocking, self.tape, self.work, self.ptr = non_blocking, None, deque(), next(self.numbers)
        CARD.known.append(weakref.ref(self, lambda one: CARD.known.remove(one)))

    def __enter__(self):
        self.entered().append(self)
        return self

    def __exit__(self, *error):
        self.entered().pop()

    @staticmethod
    def entered():
        """Return the streams of the calling thread's blocks, the outermost first."""
        if not hasattr(HERE, "streams"):
            HERE.streams = []
        return HERE.streams

    @classmethod
    def current(cls):
        return cls.entered()[-1] if cls.entered() else NULL

    def put(self, work):
        """Put work on the stream. The null stream's is done when all streams' is, before the call returns."""
        check_entered(self)
        CARD.put += 1
        if self.tape is not None:
            self.tape.works.append(work)
            return
        if self is not NULL:
            self.work.append((None, 0, work))
            return
        CARD.finish()
        with np.errstate(all="ignore"):
            work()

    def wait_event(self, event):
        self.work.append((event, event.recorded, lambda: None))

    @property
    def can_go_on(self):
        return bool(self.work) and (self.work[0][0] is None or self.work[0][0].passed >= self.work[0][1])

    @property
    def done(self):
        CARD.go_on()
        return not self.work

    def begin_capture(self):
        assert self is self.current() and self.non_blocking and self.tape is None
        self.tape = Tape()

    def end_capture(self):
        tape, self.tape = self.tape, None
        return tape

    def synchronize(self):
        end = Event()
        end.record(self)
        end.synchronize()


NULL = Stream()
NULL.ptr = 0


class Event:
    """CuPy's event."""

    known: weakref.WeakValueDictionary[int, Event] = weakref.WeakValueDictionary()

    def __init__(self, block=False, disable_timing=False):
        self.recorded = self.passed = self.put = 0
        self.ptr = id(self)
        self.known[self.ptr] = self

    def record(self, stream=None):
        stream = stream or Stream.current()
        assert stream.tape is None, "an event in a recording marks nothing outside it"
        self.recorded, self.put = self.recorded + 1, CARD.put
        stream.work.append((None, 0, lambda ticket=self.recorded: setattr(self, "passed", ticket)))

    def synchronize(self):
        refuse()
        CARD.waits.append(self.put)
        while self.passed < self.recorded:
            CARD.tick()


def event_query(pointer):
    """Return an event's status, as CUDA's runtime does."""
    CARD.go_on()
    event = Event.known[pointer]
    return 0 if event.passed >= event.recorded else 600


@contextmanager
def using_allocator(allocator):
    """Take memory from a pool."""
    before, HERE.allocator = getattr(HERE, "allocator", None), allocator
    try:
        yield
    finally:
        HERE.allocator = before


def check_entered(stream):
    """Refuse a thread that has not made a device current, or that has no stream of its own for its work."""
    if threading.current_thread() is threading.main_thread():
        return
    if stream is NULL or getattr(HERE, "device", None) is None:
        raise RuntimeError(f"thread {threading.current_thread().name} has not entered its device and stream")


def recording():
    """Return the calling thread's tape, if its stream records."""
    return Stream.current().tape


def guarded(like):
    """Return new memory for an array of that shape and type, with bytes behind it that no kernel may write."""
    memory = np.full(like.nbytes + GUARD, GUARD_BYTE, np.uint8)
    GUARDED[memory.ctypes.data] = memory
    return memory[: like.nbytes].view(like.dtype).reshape(like.shape)


def check_guard(array, who):
    """Fail where something has been written behind the memory that an array lies in."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    if GUARDED.get(array.ctypes.data) is array:
        assert (array[-GUARD:] == GUARD_BYTE).all(), f"{who} wrote behind an array of {array.nbytes - GUARD} bytes"


def act(written, work):
    """Put work on the current stream that writes into these arrays."""
    Stream.current().put(work)


def made(given, make):
    """Return what `make` makes, at once if it is a view of the given ones. Else it has its shape, and numbers later.

    It is made of what memory holds now, to learn its shape; indices that are out of bounds there are waited for.
    """
    try:
        with np.errstate(all="ignore"):
            result = make()
    except IndexError:
        CARD.finish()
        result = make()
    if not isinstance(result, (np.ndarray, np.generic)):
        return result
    result = np.asarray(result)
    if not any(np.may_share_memory(result, one) for one in given if isinstance(one, np.ndarray)):
        take_memory()
        result = guarded(result)
        with np.errstate(over="ignore"):  # infinity in float16
            result[...] = RUBBISH if result.dtype.kind == "f" else 0
        Stream.current().put(lambda: np.copyto(result, make(), casting="unsafe"))
    return result


def take_memory():
    """Refuse memory for a recording from the pool of all: when the array is gone another one may get it."""
    if recording() is not None and getattr(HERE, "allocator", None) is None:
        raise RuntimeError("the current stream is capturing, and memory comes from the pool of all other arrays")


def refuse():
    """Raise as CuPy does where the host asks a device that records for a value."""
    if recording() is not None:
        raise RuntimeError(CAPTURING)


def refuse_cublas():
    """Raise as CuPy's binding of cuBLAS does while the current stream records."""
    if recording() is not None:
        raise NotImplementedError(NO_CUBLAS)


def settle():
    """Wait, in the host's place, until the current stream is done."""
    refuse()
    CARD.waits.append(CARD.put)
    CARD.finish([Stream.current()])
