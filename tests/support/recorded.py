"""What CUDA's graphs do, for tests on the host: work is recorded instead of done, and done each time it is launched."""

import threading

import numpy as np

MAKING = threading.local()  # its `tape` is the one that a thread is recording on


def recording():
    """Return the calling thread's tape, if it records."""
    return getattr(MAKING, "tape", None)


class Tape:
    """A recording. Work is done while it is recorded, as its results have shapes, and undone at the end."""

    def __init__(self):
        self._works, self._undo = [], []
        MAKING.tape = self

    def end(self):
        MAKING.tape = None
        for values, before in reversed(self._undo):
            values[...] = before
        return self

    def launch(self):
        for work in self._works:
            work()

    def add(self, written, work):
        self._undo += [(values, values.copy()) for values in written]
        self._works.append(work)


class Stream:
    """CuPy's: the end of a with block goes back to the stream of the block around it, whatever was put to use."""

    blocks = threading.local()

    def __init__(self, non_blocking=False):
        self.non_blocking = non_blocking

    def __enter__(self):
        self.entered().append(self)

    def __exit__(self, *error):
        self.entered().pop()

    @classmethod
    def entered(cls):
        """Return the streams of the calling thread's blocks, the outermost first."""
        if not hasattr(cls.blocks, "streams"):
            cls.blocks.streams = []
        return cls.blocks.streams

    @classmethod
    def current(cls):
        return cls.entered()[-1] if cls.entered() else NULL

    def begin_capture(self):
        assert self is self.current() and self.non_blocking
        self.tape = Tape()

    def end_capture(self):
        return self.tape.end()

    def synchronize(self):
        pass


NULL = Stream()


def act(written, work):
    """Do work that writes into these arrays, and record it if that is to be."""
    if (tape := recording()) is not None:
        tape.add(written, work)
    return work()


def made(given, make):
    """Return what `make` makes; if that is a new array and no view of the given ones, record how it is filled."""
    result = make()
    if (tape := recording()) is not None and isinstance(result, (np.ndarray, np.generic)):
        result = np.asarray(result)
        if not any(np.may_share_memory(result, one) for one in given if isinstance(one, np.ndarray)):
            tape.add([result], lambda: np.copyto(result, make()))
    return result


def refuse():
    """Raise as CuPy does where the host asks a device that records for a value."""
    if recording() is not None:
        raise RuntimeError("the current stream is capturing, so synchronous API calls are disallowed")
