"""Waited: what a taker of batches waits for them, and what they take."""

from __future__ import annotations

from readers.batch_queue import Batch


class Waited:
    """Count the seconds that a data layer waited for its batches, and those that these took in reader threads.

    Nothing can hide the first batch after a start or a jump: it is not counted.
    """

    def __init__(self) -> None:
        self.seconds = self.reading = self.transforming = 0.0

    def add(self, seconds: float, batch: Batch, first: bool) -> None:
        """Count a batch, and the seconds that its layer waited for it."""
        begin, middle, end = batch.seconds
        if not first:
            self.seconds += seconds
            self.reading += (middle or end) - begin
            self.transforming += end - middle if middle else 0.0
