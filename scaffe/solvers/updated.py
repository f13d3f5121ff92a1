"""Updated: which parameters are updated in full, where several calls update a part of each."""

from __future__ import annotations

from threading import Lock

from scaffe.blobs.packed import PackedParameters


class Updated:
    """Count the updated elements of each parameter since the gradients were set to zero. Threads may share it."""

    def __init__(self, packed: PackedParameters):
        self._packed, self._lock = packed, Lock()
        self._counts = [0] * len(packed.parameters)
        self._cleared = packed.cleared

    def completes(self, i: int, count: int, owned: int) -> bool:
        """Count `count` more elements of parameter i; return whether none is left of those that this rank owns.

        Until then its gradient is still needed.
        """
        with self._lock:
            if self._cleared != self._packed.cleared:  # the last updates may have ended in an error
                self._counts, self._cleared = [0] * len(self._counts), self._packed.cleared
            self._counts[i] += count
            complete = self._counts[i] == owned
            if complete:
                self._counts[i] = 0
            return complete
