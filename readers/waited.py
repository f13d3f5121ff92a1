"""Waited: the seconds that a data layer waits for batches, and those that reader threads spend on them."""

from __future__ import annotations

from readers.batch_queue import Batch


class Waited:
    """Sums of the seconds that a data layer waited for batches, and of their reading and transforming.

    The first batch after a start or a seek is not counted: no computation can hide it.
    """

    def __init__(self) -> None:
        self.seconds = self.reading = self.transforming = 0.0

    def add(self, seconds: float, batch: Batch, first: bool) -> None:
        """Add a batch, and the seconds that its layer waited for it."""
        begin, middle, end = batch.seconds
        if not first:
            self.seconds += seconds
            self.reading += (middle or end) - begin
            self.transforming += end - middle if middle else 0.0
