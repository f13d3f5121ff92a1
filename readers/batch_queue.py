"""BatchQueue: each rank's reader threads and its queue of batches, S-Caffe's parallel readers (section 4.1)."""

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

PATIENCE = 5.0  # seconds to wait for reader threads at `close`: a thread blocked on a dead disk must not block the job


class BatchMemory(Protocol):
    """Allocates batches for a device, in host memory from which it copies asynchronously."""

    transforms: bool  # the device transforms images: batches also need space for images as read

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return so many bytes of page-locked memory (uint8), not initialised."""


@dataclass
class Raw:
    """Images as read, all of one shape, and the transform that the device applies to them.

    `images` (n x C x H x W, uint8 or float32); `places` (n x 3, int32): top row and left column of each crop, and 1
    where it is mirrored, else 0.
    """

    images: np.ndarray
    places: np.ndarray
    transform: Transform


class Batch:
    """One rank's part of a global batch: its arrays (n x ..., float32), and where the records come from.

    - `data` (n x C x H x W) and `label` (n) are the first two arrays of a batch of images.
    - `keys` has a key for each row, for the source's `describe`.
    - `bad` has a message for each bad record that was replaced.
    - `number` is the number of the global batch, `thread` that of the reader thread.
    - `seconds` are three times of perf_counter: begin of reading, begin of transforming, end. The second is
      `read_until`, computed as if all records were decoded before the first was transformed; 0 where a reader does not
      measure it.
    - `raw` is present where a device transforms images; it shares the memory of `data`. Where `is_raw`, the images are
      in `raw`, and `data` is not valid yet.
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


def allocate(count: int, rows: int, shapes: Iterable[Sequence[int]], memory: BatchMemory | None = None) -> list[Batch]:
    """Return `count` batches of `rows` rows, with an array for each shape of a row, in `memory` if given."""
    shapes = [(rows, *shape) for shape in shapes]
    return [Batch(*(_array(shape, memory) for shape in shapes)) for _ in range(count)]


def _array(shape: Sequence[int], memory: BatchMemory | None) -> np.ndarray:
    if memory is None:
        return np.zeros(shape, np.float32)
    return memory.pinned(4 * prod(shape)).view(np.float32).reshape(shape)


class BatchQueue:
    """Reads batches ahead in `threads` threads, and returns them in order.

    `read(number, batch)` fills a batch; several threads call it at the same time. `batches` yields the numbers to
    read: `itertools.count(t)` reads without end from batch t. The batches of `population` alternate between a free and
    a full queue; no others are allocated. The caller owns a batch from `get` to `recycle`. `seconds_waited` and
    `batches_taken` show whether the readers keep up. Raises ReaderError without a thread or without a batch.
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
        # The threads hold no reference to this object, so that its finalizer ends them.
        self._queues = queues = _Queues(read, iter(batches), population)
        self._threads = [
            threading.Thread(target=queues.fill, args=(k,), name=f"reader {k}", daemon=True)
            for k in range(min(threads, len(population)))
        ]
        self._stop = weakref.finalize(self, _end, self._threads, queues, PATIENCE)
        for thread in self._threads:
            thread.start()

    def get(self) -> Batch:
        """Wait for the next batch and return it.

        Raises EndOfBatches after the last one, and ReaderError after `close`. An exception of a reader thread is
        raised here, in place of the batch that it did not fill.
        """
        if self._ended is not None:
            raise self._ended
        started = perf_counter()
        try:
            batch = self._queues.full.get().result()
        except BaseException as error:
            self._ended = error
            raise
        finally:
            self.seconds_waited += perf_counter() - started
        self.batches_taken += 1
        return batch

    def recycle(self, batch: Batch) -> None:
        """Return a batch to the free queue."""
        self._queues.free.put(batch)

    def close(self) -> None:
        """Stop the reader threads, and wait for them for PATIENCE seconds at most. A second call does nothing."""
        self._stop()
        self._ended = ReaderError("the batch queue is closed")

    def __enter__(self) -> BatchQueue:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Queues:
    """The state that reader threads share: numbers to read, free batches, and full batches in order.

    A thread that starts a batch appends its future to `full`, one thread at a time and so in order. The future is done
    when the batch is full.
    """

    def __init__(self, read: Callable[[int, Batch], None], numbers: Iterator[int], population: Sequence[Batch]):
        self.free: SimpleQueue[Batch | None] = SimpleQueue()
        self.full: SimpleQueue[Future[Batch]] = SimpleQueue()
        self.stop = threading.Event()
        self._read, self._numbers = read, numbers
        self._turn = threading.Lock()
        for batch in population:
            self.free.put(batch)

    def fill(self, thread: int) -> None:
        """Fill free batches, as thread number `thread`, until `end` is called or a batch fails."""
        while (taken := self._begin()) is not None:
            batch, future = taken
            try:
                batch.thread, begin = thread, perf_counter()
                self._read(batch.number, batch)
                batch.seconds = begin, batch.read_until, perf_counter()
                future.set_result(batch)
            except BaseException as error:  # re-raised by `get`
                self.end()
                future.set_exception(error)

    def end(self) -> None:
        """Stop the threads, each after its current batch."""
        self.stop.set()
        self.free.put(None)

    def _begin(self) -> tuple[Batch, Future[Batch]] | None:
        """Return a free batch with the number to read, and its future; None at the end."""
        with self._turn:
            batch = self.free.get()
            if batch is None or self.stop.is_set():
                self.free.put(None)  # for the other threads
                return None
            future: Future[Batch] = Future()
            self.full.put(future)
            try:
                batch.number, batch.read_until = next(self._numbers), 0.0
            except StopIteration:
                future.set_exception(EndOfBatches("all batches have been read"))
            except BaseException as error:
                future.set_exception(error)
            else:
                return batch, future
            self.end()
            return None


def _end(threads: Sequence[threading.Thread], queues: _Queues, patience: float) -> None:
    """Stop the reader threads and join them, for `patience` seconds at most; never the thread that this runs in."""
    queues.end()
    deadline = monotonic() + patience
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - monotonic()))
