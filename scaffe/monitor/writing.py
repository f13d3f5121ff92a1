"""Writing: a thread that gives numbers to their writers, so that training does not wait for files."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread, current_thread

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
        thread, self._thread = self._thread, None
        if thread is None:
            self._end()
        else:
            self._queue.put(None)
            if thread is not current_thread():  # in which Python may collect a solver that nobody has closed
                thread.join()

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
        self._end()

    def _end(self) -> None:
        writers, self._writers = self._writers, ()
        for writer in writers:
            try:
                writer.close()
            except OSError as error:  # some network file systems report a full disk here
                log.warning("%s: the last numbers may be lost: %s", writer.name, _reason(error))

    def _give(self, writer: Writer, numbers: Sequence[Numbers]) -> None:
        try:
            writer.write(numbers)
        except Exception as error:  # none of them may end the training
            if writer.name not in self._reported:
                self._reported.add(writer.name)
                log.warning("%s: numbers of iteration %d are lost: %s; training goes on", writer.name,
                            numbers[-1].iteration, _reason(error))  # fmt: skip


def _reason(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    return strerror.lower() if strerror else str(error)
