"""One reader thread and one queue of batches for each rank: S-Caffe's parallel readers (section 4.1)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import numpy as np

from readers.errors import EndOfBatches, ReaderError

PATIENCE = 5.0  # seconds that a forgotten queue waits for its reader thread, at interpreter exit for instance


class Batch:
    """One rank's part of a global batch: its arrays (n x ..., float32), and what the records are called.

    Of images `data` (n x C x H x W) comes first, then `label` (n). `keys` are what the source describes records by,
    `bad` what was wrong with records that these stand in for.
    `seconds` are perf_counter's when its reading began, when its transformation did (`read_until`; 0 where a reader
    doesn't tell the two apart), and when it was full.
    """

    def __init__(self, *arrays: np.ndarray):
        self.arrays = list(arrays)
        self.keys: list[Any] = []
        self.bad: list[str] = []
        self.number = -1
        self.seconds = (0.0, 0.0, 0.0)
        self.read_until = 0.0

    @property
    def data(self) -> np.ndarray:
        """The first array."""
        return self.arrays[0]

    @property
    def label(self) -> np.ndarray:
        """The second array."""
        return self.arrays[1]


def allocate(count: int, rows: int, shapes: Iterable[Sequence[int]]) -> list[Batch]:
    """Return `count` batches of `rows` rows, an array for each of the rows' `shapes`."""
    shapes = list(shapes)
    return [Batch(*(np.zeros((rows, *shape), np.float32) for shape in shapes)) for _ in range(count)]


class BatchQueue:
    """Reads batches ahead in a thread of its own.

    `read(number, batch)` fills a batch; `batches` yields the numbers to read, `itertools.count(t)` for an
    endless run from batch t on. The batches of `population` go round between a free and a full queue, so no
    more than these are ever in memory. Between `get` and `recycle` a batch is the caller's. `seconds_waited`
    and `batches_taken` tell whether the reader keeps up.
    """

    def __init__(self, read: Callable[[int, Batch], None], batches: Iterable[int], population: Sequence[Batch]):
        if not population:
            raise ReaderError("expected a population of one batch at least, got none")
        self.seconds_waited = 0.0
        self.batches_taken = 0
        self._ended: BaseException | None = None
        self._free: SimpleQueue[Batch | None] = SimpleQueue()
        self._full: SimpleQueue[Batch | BaseException] = SimpleQueue()
        for batch in population:
            self._free.put(batch)
        # The thread knows the two queues but not this object, so that forgetting the object ends the thread.
        stop = threading.Event()
        self._thread = threading.Thread(
            target=_read_ahead, args=(read, batches, self._free, self._full, stop), name="reader", daemon=True
        )
        self._stop = weakref.finalize(self, _end_thread, self._thread, stop, self._free, PATIENCE)
        self._thread.start()

    def get(self) -> Batch:
        """Return the next batch, waiting for it if need be.

        Raises EndOfBatches after the last one, ReaderError when closed, and what the reader thread raised.
        """
        if self._ended is not None:
            raise self._ended
        started = perf_counter()
        batch = self._full.get()
        self.seconds_waited += perf_counter() - started
        if isinstance(batch, BaseException):
            self._ended = batch
            raise batch
        self.batches_taken += 1
        return batch

    def recycle(self, batch: Batch) -> None:
        """Give a batch back to be filled again."""
        self._free.put(batch)

    def close(self) -> None:
        """Stop the reader thread and wait for its end. Closing twice is allowed."""
        self._stop()
        self._thread.join()
        self._ended = ReaderError("the batch queue is closed")

    def __enter__(self) -> BatchQueue:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _read_ahead(
    read: Callable[[int, Batch], None],
    batches: Iterable[int],
    free: SimpleQueue[Batch | None],
    full: SimpleQueue[Batch | BaseException],
    stop: threading.Event,
) -> None:
    """Fill free batches until told to stop; whatever ends it early is put where the batches are awaited."""
    try:
        for number in batches:
            batch = free.get()
            if batch is None or stop.is_set():
                return
            batch.number, batch.read_until, begin = number, 0.0, perf_counter()
            read(number, batch)
            batch.seconds = begin, batch.read_until, perf_counter()
            full.put(batch)
        full.put(EndOfBatches("all batches have been read"))
    except BaseException as error:  # it is raised again where the batch is awaited
        full.put(error)


def _end_thread(
    thread: threading.Thread, stop: threading.Event, free: SimpleQueue[Batch | None], patience: float
) -> None:
    """Tell the reader thread to end and give it a while, unless this runs in that very thread."""
    stop.set()
    free.put(None)
    if thread is not threading.current_thread():
        thread.join(patience)
