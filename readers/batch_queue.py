"""Reader threads and a queue of batches for each rank: S-Caffe's parallel readers (section 4.1)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import prod
from queue import SimpleQueue
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from readers.errors import EndOfBatches, ReaderError

if TYPE_CHECKING:
    from readers.transform import Transform

PATIENCE = 5.0  # seconds that a queue waits for its threads to end; one that a dead disk holds must not hold the job


class Memory(Protocol):
    """Where batches lie that a device is given: host memory that it copies from by itself."""

    transforms: bool  # the device transforms images, so batches have room for them as they were read

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return bytes of such memory, with any content."""


@dataclass
class Raw:
    """Images as they were read, all of one shape, and what is to be done to them.

    `images` (n x C x H x W, uint8 or float32), `places` (n x 3, int32: a crop's top row and left column, and 1 where it
    is mirrored).
    """

    images: np.ndarray
    places: np.ndarray
    transform: Transform


class Batch:
    """One rank's part of a global batch: its arrays (n x ..., float32), and what the records are called.

    Of images `data` (n x C x H x W) comes first, then `label` (n). `keys` are what the source describes records by,
    `bad` what was wrong with records that these stand in for.
    `seconds` are perf_counter's when its reading began, when its transformation did (`read_until`, as if all was read
    and decoded before; 0 where a reader doesn't tell the two apart), and when it was full; `thread` is the number of
    the thread that did it. A batch for a device that transforms images has `raw`, in the same memory as `data`: where
    `is_raw`, the images are there, and `data` is still to be made of them.
    """

    def __init__(self, *arrays: np.ndarray):
        self.arrays = list(arrays)
        self.keys: list[Any] = []
        self.bad: list[str] = []
        self.number = -1
        self.thread = 0
        self.seconds = (0.0, 0.0, 0.0)
        self.read_until = 0.0
        self.raw: Raw | None = None
        self.is_raw = False

    @property
    def data(self) -> np.ndarray:
        """The first array."""
        return self.arrays[0]

    @property
    def label(self) -> np.ndarray:
        """The second array."""
        return self.arrays[1]


def allocate(count: int, rows: int, shapes: Iterable[Sequence[int]], memory: Memory | None = None) -> list[Batch]:
    """Return `count` batches of `rows` rows, an array for each of the rows' `shapes`; in `memory` where it is given."""
    shapes = [(rows, *shape) for shape in shapes]
    return [Batch(*(_room(shape, memory) for shape in shapes)) for _ in range(count)]


def _room(shape: Sequence[int], memory: Memory | None) -> np.ndarray:
    if memory is None:
        return np.zeros(shape, np.float32)
    return memory.pinned(4 * prod(shape)).view(np.float32).reshape(shape)


class BatchQueue:
    """Reads batches ahead in `threads` threads of its own, and hands them out in order.

    `read(number, batch)` fills a batch, several of them at once where there are several threads; `batches` yields
    the numbers to read, `itertools.count(t)` for an endless run from batch t on. The batches of `population` go
    round between a free and a full queue, so no more than these are ever in memory. Between `get` and `recycle` a
    batch is the caller's. `seconds_waited` and `batches_taken` tell whether the readers keep up. Raises ReaderError
    without a thread, or a batch to fill.
    """

    def __init__(
        self,
        read: Callable[[int, Batch], None],
        batches: Iterable[int],
        population: Sequence[Batch],
        threads: int = 1,
    ):
        if not population:
            raise ReaderError("expected a population of one batch at least, got none")
        if threads < 1:
            raise ReaderError(f"expected one reader thread at least, got {threads}")
        self.seconds_waited = 0.0
        self.batches_taken = 0
        self._ended: BaseException | None = None
        # The threads know the work but not this object, so that forgetting the object ends them.
        self._work = work = _Work(read, iter(batches), population)
        self._threads = [
            threading.Thread(target=work.run, args=(k,), name=f"reader {k}", daemon=True)
            for k in range(min(threads, len(population)))
        ]
        self._stop = weakref.finalize(self, _end, self._threads, work, PATIENCE)
        for thread in self._threads:
            thread.start()

    def get(self) -> Batch:
        """Return the next batch, waiting for it if need be.

        Raises EndOfBatches after the last one, ReaderError when closed, and what a reader thread raised: in the
        place of the batch that it could not fill.
        """
        if self._ended is not None:
            raise self._ended
        started = perf_counter()
        try:
            batch = self._work.full.get().result()
        except BaseException as error:
            self._ended = error
            raise
        finally:
            self.seconds_waited += perf_counter() - started
        self.batches_taken += 1
        return batch

    def recycle(self, batch: Batch) -> None:
        """Give a batch back to be filled again."""
        self._work.free.put(batch)

    def close(self) -> None:
        """Stop the reader threads and wait for their end, some seconds at most. Closing twice is allowed."""
        self._stop()
        self._ended = ReaderError("the batch queue is closed")

    def __enter__(self) -> BatchQueue:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Work:
    """What reader threads share: the numbers still to read, the free batches, and the full ones in order.

    A batch is promised in `full` when a thread begins it, which is done in order, and there when it is full.
    """

    def __init__(self, read: Callable[[int, Batch], None], numbers: Iterator[int], population: Sequence[Batch]):
        self.free: SimpleQueue[Batch | None] = SimpleQueue()
        self.full: SimpleQueue[Future[Batch]] = SimpleQueue()
        self.stop = threading.Event()
        self._read, self._numbers = read, numbers
        self._turn = threading.Lock()
        for batch in population:
            self.free.put(batch)

    def run(self, thread: int) -> None:
        """Fill free batches, in thread number `thread`, until told to stop or one fails."""
        while (taken := self._begin()) is not None:
            batch, promise = taken
            try:
                batch.thread, begin = thread, perf_counter()
                self._read(batch.number, batch)
                batch.seconds = begin, batch.read_until, perf_counter()
                promise.set_result(batch)
            except BaseException as error:  # it is raised again where the batch is awaited
                self.end()
                promise.set_exception(error)

    def end(self) -> None:
        """Let the threads end, each after the batch that it is at."""
        self.stop.set()
        self.free.put(None)

    def _begin(self) -> tuple[Batch, Future[Batch]] | None:
        """Return a free batch with the number to read, and its promise; None at the end."""
        with self._turn:
            batch = self.free.get()
            if batch is None or self.stop.is_set():
                self.free.put(None)  # for the other threads
                return None
            promise: Future[Batch] = Future()
            self.full.put(promise)
            try:
                batch.number, batch.read_until = next(self._numbers), 0.0
            except StopIteration:
                promise.set_exception(EndOfBatches("all batches have been read"))
            except BaseException as error:
                promise.set_exception(error)
            else:
                return batch, promise
            self.end()
            return None


def _end(threads: Sequence[threading.Thread], work: _Work, patience: float) -> None:
    """Tell the reader threads to end and give them a while, unless this runs in one of them."""
    work.end()
    deadline = monotonic() + patience
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - monotonic()))
