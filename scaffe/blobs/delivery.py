"""Delivery: how batches that data layers have read reach their tops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from readers import Batch, BatchMemory
from scaffe.blob import Blob

Fill = Callable[[int, Batch], None]


class Delivery:
    """Delivery on the host: the tops borrow the arrays of the batch, so nothing is copied.

    Each batch belongs to the delivery from `add` on. Reader threads fill it by `filling`'s function; others `wait`,
    fill it and `send` it. Then `give` hands its values to blobs, in the thread that computes.
    """

    in_turn = 1  # batches that a layer without reader threads fills in turn

    def memory(self) -> BatchMemory | None:
        """Return where batches' arrays are to lie, None for plain arrays."""
        return None

    def add(self, batches: list[Batch]) -> list[Batch]:
        """Take batches, and return them."""
        return batches

    def filling(self, fill: Fill) -> Fill:
        """Return what fills a batch and sends it, in any thread."""
        return fill

    def wait(self, batch: Batch) -> None:
        """Wait until a batch may be filled again."""

    def send(self, batch: Batch) -> None:
        """Send a batch that has been filled."""

    def give(self, batch: Batch, blobs: Sequence[Blob]) -> None:
        """Make a batch's arrays the values of blobs, until the next pass; a label without a top is left out."""
        for blob, array in zip(blobs, batch.arrays, strict=False):
            blob.borrow(array)

    def close(self) -> None:
        """Forget the batches, once nothing reads or writes their memory."""
