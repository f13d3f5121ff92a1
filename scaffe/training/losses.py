"""Losses: the global loss of each iteration, on which all ranks agree before they go on, and on faults of updates."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np

from scaffe.engine import Loss
from scaffe.errors import DivergedError
from scaffe.files import snapshot
from scaffe.net import Net
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.solvers import lr_policy
from scaffe.solvers.rule import Rule
from scaffe.training.bad_records import BadRecords
from scaffe.training.signals import ACTIONS


class Fault(NamedTuple):
    """Something that is not finite: when, what it is, and whether it changed the parameters."""

    iteration: int
    text: str
    consequence: str


class Losses:
    """The last losses, and what any rank was asked for meanwhile: `wishes`.

    What the `rule` found not to be finite goes out with the next iteration's loss, before its update, or by `settle`. A
    loss that comes from a device is agreed on with the next iteration's, or by `settle`, so that nobody waits for it;
    if it is not finite then, its iteration's update has been applied.
    """

    def __init__(
        self,
        world: World,
        param: SolverParameter,
        asked: Callable[[], Sequence[bool]],
        bad_records: BadRecords,
        net: Net,
        rule: Rule,
    ):
        self._world, self._param, self._asked, self._bad_records = world, param, asked, bad_records
        self._net, self._rule = net, rule
        self.last: deque[float] = deque(maxlen=param.average_loss)
        self.wishes: set[str] = set()
        self._sent: tuple[Loss, int] | None = None  # with its iteration
        self._updated: int | None = None  # the iteration whose update has not been agreed on

    @property
    def mean(self) -> float:
        """The mean of the last average_loss losses."""
        return float(np.mean(self.last))

    def take(self, part: Loss, iteration: int) -> None:
        """Agree on an iteration's loss, of which this rank gives its part, or on the last iteration's if it is late.

        Take note of what any rank was asked for, in the same message. Raise DivergedError on all ranks where that
        loss, or what the last update left on any, is not finite. Collective.
        """
        if part.late:
            before, self._sent = self._sent, (part, iteration)
            self._agree_late(before)
        else:
            self._agree(part.value(), iteration, "no update was applied")
        self._updated = iteration

    def settle(self) -> None:
        """Agree on the loss that is still on its way, and on what the last update left. Collective."""
        if self._updated is not None:
            before, self._sent = self._sent, None
            self._agree_late(before)
            self._updated = None

    def _agree_late(self, before: tuple[Loss, int] | None) -> None:
        if before is None:
            self._sum(0.0, self._faults())
        else:
            self._agree(before[0].value(), before[1], "its update was applied")

    def _agree(self, part: float, iteration: int, consequence: str) -> None:
        faults = self._faults()
        if not isfinite(part):
            layers = ", ".join(f"'{name}'" for name in self._net.suspects())
            faults.insert(0, Fault(iteration, f"layer {layers}: the loss is not finite", consequence))
        self.last.append(self._sum(part if isfinite(part) else 0.0, faults))

    def _faults(self) -> list[Fault]:
        """Return what the last update left on this rank that is not finite."""
        found = self._rule.faulty()
        if found is None or self._updated is None:
            return []
        text = f"layer '{found.layer}': parameter {found.index}, or its history, is not finite"
        return [Fault(self._updated, text, "the update was applied")]

    def _sum(self, part: float, faults: list[Fault]) -> float:
        """Return the sum of the ranks' parts, and take note of the rest. Raise DivergedError where any has a fault."""
        actions = [float(asked) for asked in self._asked()]
        mine = [part, bool(faults), *actions, *self._bad_records.counts()]
        loss, broken, *others = self._world.allsums(mine)
        self.wishes |= {action for action, wish in zip(ACTIONS, others, strict=False) if wish}
        if broken:
            raise self._diverged(faults)
        self._bad_records.check(others[len(ACTIONS) :])
        return float(loss)

    def _diverged(self, faults: list[Fault]) -> DivergedError:
        """Return the error that all ranks raise: it tells of the first fault that any has. Collective."""
        all_faults = [fault for some in self._world.allgather(faults) for fault in some]
        first = min(all_faults, key=lambda fault: fault.iteration)
        newest = self._world.on_root(lambda: snapshot.newest(self._param.snapshot_prefix))
        return DivergedError(
            f"{first.text} at iteration {first.iteration}, learning rate "
            f"{lr_policy.rate(self._param, first.iteration):g}: {first.consequence}; lower base_lr, or look at the "
            f"data; newest snapshot: {newest or 'none'}"
        )
