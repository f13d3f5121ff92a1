"""Writing: a thread that gives numbers to their writers, so that training does not wait for files."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread

from scaffe.monitor.log import log
from scaffe.monitor.numbers import Numbers, Writer


class Writing:
    """Give numbers to `writers` in a thread, which the first `put` starts and `close` ends.

    Numbers that have come meanwhile are written together. A writer that fails, for example for a full disk, is reported
    once, and gets the next numbers all the same.
    """

    def __init__(self, writers: Sequence[Writer]):
        self._writers = writers
        self._queue: SimpleQueue[Numbers | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._reported: set[str] = set()

    def put(self, numbers: Numbers) -> None:
        """Write the numbers soon; returns at once."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="numbers", daemon=True)
            self._thread.start()
        self._queue.put(numbers)

    def close(self) -> None:
        """Return once all is written, and close the writers."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        for writer in self._writers:
            writer.close()
        self._writers = ()

    def _run(self) -> None:
        ends = False
        while not ends:
            waiting = [self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get())
            ends = None in waiting
            numbers = [one for one in waiting if one is not None]
            for writer in self._writers if numbers else ():
                self._give(writer, numbers)

    def _give(self, writer: Writer, numbers: Sequence[Numbers]) -> None:
        try:
            writer.write(numbers)
        except Exception as error:  # none of them may end the training
            if writer.name not in self._reported:
                self._reported.add(writer.name)
                reason = getattr(error, "strerror", "") or str(error)
                log.warning("%s: numbers of iteration %d are lost: %s; training goes on", writer.name,
                            numbers[-1].iteration, reason.lower())  # fmt: skip
