"""Losses: the global loss of each iteration, on which all ranks agree before they go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Protocol

import numpy as np

from scaffe import snapshot
from scaffe.bad_records import BadRecords
from scaffe.errors import DivergedError
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.signals import ACTIONS
from scaffe.solvers import lr_policy


class Sent(Protocol):
    """A loss on its way from a device."""

    def loss(self) -> float:
        """Wait for it, and return it."""


class Losses:
    """The last losses, and what any rank was asked for meanwhile: `wishes`.

    A loss that comes from a device is agreed on with the next iteration's, or by `settle`, so that nobody waits for it;
    if it is not finite then, its iteration's update has been applied.
    """

    def __init__(
        self, world: World, param: SolverParameter, asked: Callable[[], Sequence[bool]], bad_records: BadRecords
    ):
        self._world, self._param, self._asked, self._bad_records = world, param, asked, bad_records
        self.last: deque[float] = deque(maxlen=param.average_loss)
        self.wishes: set[str] = set()
        self._sent: tuple[Sent, int] | None = None  # with its iteration

    @property
    def mean(self) -> float:
        """The mean of the last average_loss losses."""
        return float(np.mean(self.last))

    def take(self, part: float | Sent, iteration: int) -> None:
        """Agree on an iteration's loss, of which this rank gives its part, or on the last's if it's on its way.

        Take note of what any rank was asked for, in the same message. Raise DivergedError on all ranks. Collective.
        """
        if isinstance(part, float):
            self._agree(part, iteration)
            return
        before, self._sent = self._sent, (part, iteration)
        if before is None:
            self._sum(0.0)
        else:
            self._agree(before[0].loss(), before[1], "its update was applied")

    def settle(self) -> None:
        """Have the loss agreed on that is still on its way. Collective."""
        if self._sent is not None:
            (sent, iteration), self._sent = self._sent, None
            self._agree(sent.loss(), iteration, "its update was applied")

    def _agree(self, part: float, iteration: int, consequence: str = "no update was applied") -> None:
        loss = self._sum(part)
        if not isfinite(loss):
            newest = self._world.on_root(lambda: snapshot.newest(self._param.snapshot_prefix))
            raise DivergedError(
                f"the loss is not finite at iteration {iteration}, learning rate "
                f"{lr_policy.rate(self._param, iteration):g}: {consequence}; lower base_lr, or look at the data; "
                f"newest snapshot: {newest or 'none'}"
            )
        self.last.append(loss)

    def _sum(self, part: float) -> float:
        """Return the sum of the ranks' parts, and take note of the rest; not finite if any part is not."""
        actions = [float(asked) for asked in self._asked()]
        finite = isfinite(part)
        mine = [part if finite else 0.0, not finite, *actions, *self._bad_records.counts()]
        loss, broken, *others = self._world.allsums(mine)
        self.wishes |= {action for action, wish in zip(ACTIONS, others, strict=False) if wish}
        if not broken:
            self._bad_records.check(others[len(ACTIONS) :])
        return float("nan") if broken else float(loss)
