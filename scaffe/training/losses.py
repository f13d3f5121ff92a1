"""Losses: the global loss of each iteration, on which all ranks agree, and values that are not finite."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import isfinite
from time import perf_counter
from typing import NamedTuple

import numpy as np

from scaffe.engine import Loss
from scaffe.errors import DivergedError
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.solvers import lr_policy
from scaffe.solvers.rule import Rule
from scaffe.training.bad_records import BadRecords
from scaffe.training.signals import ACTIONS


class Fault(NamedTuple):
    """A value that is not finite: its iteration, its place, and whether it changed the parameters."""

    iteration: int
    text: str
    consequence: str


class Losses:
    """The last losses, and the requests of any rank since: `requests`.

    A value that the `rule` found not to be finite is reported with the next iteration's loss, before its update, or by
    `settle`. The loss of a device is summed one iteration late, or by `settle`, so that the host does not wait; if it
    is not finite, its iteration's update has been applied. `asked` is Solver's; `newest` returns the
    newest snapshot's state, on the root.
    """

    def __init__(
        self,
        world: World,
        param: SolverParameter,
        asked: Callable[[], Sequence[bool]],
        bad_records: BadRecords,
        rule: Rule,
        newest: Callable[[], str | None],
    ):
        self._world, self._param, self._asked, self._bad_records = world, param, asked, bad_records
        self._rule, self._newest = rule, newest
        self.last: deque[float] = deque(maxlen=param.average_loss)
        self.requests: set[str] = set()
        self.waited = 0.0  # seconds in which the losses were summed: the other ranks' delay
        self._sent: tuple[Loss, int] | None = None  # with its iteration
        self._updated: int | None = None  # the iteration whose update is still to be checked

    @property
    def mean(self) -> float:
        """The mean of the last average_loss losses."""
        return float(np.mean(self.last))

    def take(self, part: Loss, iteration: int, at_once: bool = False) -> None:
        """Sum an iteration's loss over the ranks, of which this one gives its part; a late part is summed one late.

        Not so `at_once`: then the host waits for a part that is late.

        The same message carries the requests of all ranks. Raise DivergedError on all ranks if the summed loss, or a
        parameter after the last update, is not finite on any. Collective.
        """
        if part.late:
            before, self._sent = self._sent, None if at_once else (part, iteration)
            self._agree_late(before)
        if at_once or not part.late:
            self._agree(part, iteration, "no update was applied")
        self._updated = iteration

    def settle(self) -> None:
        """Sum the loss that is still on a device, and check the last update. Collective."""
        if self._updated is not None:
            before, self._sent = self._sent, None
            self._agree_late(before)
            self._updated = None

    def _agree_late(self, before: tuple[Loss, int] | None) -> None:
        if before is None:
            self._sum(0.0, self._faults())
        else:
            self._agree(*before, "its update was applied")

    def _agree(self, part: Loss, iteration: int, consequence: str) -> None:
        faults, value = self._faults(), part.value()
        if not isfinite(value):
            layers = ", ".join(f"'{name}'" for name in part.suspects())
            faults.insert(0, Fault(iteration, f"layer {layers}: the loss is not finite", consequence))
        self.last.append(self._sum(value if isfinite(value) else 0.0, faults))

    def _faults(self) -> list[Fault]:
        """Return the values that are not finite after the last update of this rank."""
        found = self._rule.faulty()
        if found is None or self._updated is None:
            return []
        text = f"layer '{found.layer}': parameter {found.index}, or its history, is not finite"
        return [Fault(self._updated, text, "the update was applied")]

    def _sum(self, part: float, faults: list[Fault]) -> float:
        """Return the sum of the ranks' parts, and note their requests. Raise DivergedError where any has a fault."""
        actions = [float(asked) for asked in self._asked()]
        mine = [part, bool(faults), *actions, *self._bad_records.counts()]
        begin = perf_counter()
        loss, broken, *others = self._world.allsums(mine)
        self.waited += perf_counter() - begin
        self.requests |= {action for action, asked in zip(ACTIONS, others, strict=False) if asked}
        if broken:
            raise self._diverged(faults)
        self._bad_records.check(others[len(ACTIONS) :])
        return float(loss)

    def _diverged(self, faults: list[Fault]) -> DivergedError:
        """Return the error that all ranks raise, with the first fault of any. Collective."""
        all_faults = [fault for some in self._world.allgather(faults) for fault in some]
        first = min(all_faults, key=lambda fault: fault.iteration)
        newest = self._world.on_root(self._newest)
        return DivergedError(
            f"{first.text} at iteration {first.iteration}, learning rate "
            f"{lr_policy.rate(self._param, first.iteration):g}: {first.consequence}; lower base_lr, or look at the "
            f"data; newest snapshot: {newest or 'none'}"
        )
