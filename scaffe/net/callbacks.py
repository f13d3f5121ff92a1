"""Callbacks: functions of a user that are called before and after each layer of a net's passes."""

from __future__ import annotations

from collections.abc import Callable

from scaffe.blobs.held import Held

Callback = Callable[[int], object]


class Callbacks:
    """One layer's part of a pass, `run(i)`, with the functions called before and after it, in the order of adding.

    A function gets the layer's index. The arrays that a user holds of the net's blobs, in `held`, show the values of
    that moment; what the function writes into them is used by the layers that follow.
    """

    def __init__(self, held: Held, run: Callable[[int], None]):
        self.held, self.run = held, run
        self.before: list[Callback] = []
        self.after: list[Callback] = []

    def __call__(self, i: int) -> None:
        """Compute layer i."""
        self._call(self.before, i)
        self.run(i)
        self._call(self.after, i)

    def _call(self, callbacks: list[Callback], i: int) -> None:
        if callbacks:
            self.held.show()
            for callback in callbacks:
                callback(i)
            self.held.absorb()
