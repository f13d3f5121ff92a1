"""What CUDA's graphs do, for tests on the host: work is recorded instead of done, and done each time it is launched."""

import threading

import numpy as np

MAKING = threading.local()  # its `tape` is the one that a thread is recording on


def recording():
    """Return the calling thread's tape, if it records."""
    return getattr(MAKING, "tape", None)


class Tape:
    """A recording. Work is done while it is recorded, as its results have shapes, and undone at the end."""

    def __init__(self, work):
        self._works, undo = [], []
        self._undo = undo
        MAKING.tape = self
        try:
            work()
        finally:
            MAKING.tape = None
            for values, before in reversed(undo):
                values[...] = before

    def launch(self):
        for work in self._works:
            work()

    def add(self, written, work):
        self._undo += [(values, values.copy()) for values in written]
        self._works.append(work)


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
