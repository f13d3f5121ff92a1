"""The drives of simulated ranks: they advance messages when the real ones do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from collectives.simulation.ranks import SimulatedRank
from scaffe.parallel.drive import DRIVES, Helper, Hook


class SimulatedHook(Hook):
    """One thread computes, and advances messages between layers."""

    def __init__(self, rank: SimulatedRank):
        super().__init__()
        self.rank = rank

    def between(self) -> None:
        """Advance messages by what has arrived until now."""
        self.rank.catch_up()
        super().between()

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Advance messages until `is_done()`."""
        while not is_done():
            if not self.advance():
                self.rank.wait_for_event()

    def advance(self) -> bool:
        """Advance messages once; return whether any advanced."""
        return any([transfer.progress() for transfer in self.transfers])


class SimulatedHelper(SimulatedHook):
    """Messages advance at each of their events, while the rank computes."""

    name = Helper.name

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Call the works while the background advances messages."""
        self.rank.background = self.advance
        self.rank.wake()
        for work in works:
            work()
        self.rank.catch_up()
        self.rank.join_background()

    def between(self) -> None:
        """Let the background see the gradients that are complete."""
        self.rank.wake()

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Return once `is_done()`: while the background runs it advances messages."""
        if self.rank.background is None:
            return super().wait(is_done)
        self.rank.wake()
        self.rank.wait_until(is_done)


def drives(rank: SimulatedRank) -> dict[str, Callable[[], Hook]]:
    """Return the makers of a rank's drives, by the names of DRIVES."""
    kinds = {Hook.name: SimulatedHook, Helper.name: SimulatedHelper}
    return {name: partial(kinds[name], rank) for name in DRIVES}
