"""The states of a prefix, in the order in which they were written.

Neither the number in a state's name nor a host's clock tells which of two runs' was written last. So each holds its
origin: the number of its run among those of the prefix, which a run that goes on from it takes over; and its order. Of
two states the one of the higher order was written later, of one order the one of the higher iteration. A run's order is
raised once a later state than its next one is there: another run's, or its own if it was set back. Files of runs that
compute the same are thus the same. Only the beginning of a state is read for that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from glob import escape, glob
from typing import NamedTuple

from scaffe.errors import PrototxtError, SnapshotError, WeightsError
from scaffe.proto.files import read_origin

_STATE = re.compile(r"_iter_(\d+)\.solverstate(\.h5)?$")


class Origin(NamedTuple):
    """Which run of a prefix has written a state, and the state's order; 0, 0 if it does not say, or none is written."""

    run: int = 0
    order: int = 0


class PrefixState(NamedTuple):
    """A state of a prefix: its path, its iteration, and its origin; None for a file that can't be read.

    Files of Caffe's, and of an older scaffe, do not say their origin.
    """

    path: str
    iteration: int
    origin: Origin | None

    @property
    def place(self) -> tuple[int, int]:
        """What states are ordered by."""
        return (self.origin.order if self.origin else 0), self.iteration

    @property
    def model(self) -> str:
        """The path of the weights beside it."""
        return re.sub(r"\.solverstate(\.h5)?$", r".caffemodel\1", self.path)


def iteration(state: str) -> int:
    """Return the iteration of a state's path, -1 for a path that is none."""
    found = _STATE.search(state)
    return int(found[1]) if found else -1


def states(prefix: str) -> list[PrefixState]:
    """Return a prefix's states, the one written first first; those without an order before all others, by iteration.

    One that can't be read comes last: who looks for the newest looks at it, and reports it.
    """
    name = re.compile(re.escape(prefix) + _STATE.pattern)  # not PREFIX_iter_20_more_iter_50, another prefix's
    paths = filter(name.fullmatch, glob(f"{escape(prefix)}_iter_*.solverstate*"))
    found = [PrefixState(path, iteration(path), _origin(path)) for path in paths]
    return sorted(found, key=lambda one: (one.origin is None, one.place))


def _origin(path: str) -> Origin | None:
    try:
        state = read_origin(path)
    except (PrototxtError, SnapshotError, WeightsError):
        return None
    return Origin(state.run, state.order)


def complete(prefix: str) -> list[PrefixState]:
    """Return the states of a prefix's complete snapshots, in the order of `states`."""
    return [one for one in states(prefix) if os.path.isfile(one.model)]


def following(origin: Origin, at: int, found: Sequence[PrefixState]) -> Origin:
    """Return the origin of a run's next state, after `at` iterations, by the states that are there.

    `origin` is that of the run's last state, Origin() before its first.
    """
    origins = [one.origin for one in found if one.origin]
    run = origin.run or 1 + max((one.run for one in origins), default=0)
    if origin.order and not any(one.place > (origin.order, at) for one in found):
        return Origin(run, origin.order)
    return Origin(run, 1 + max((one.order for one in origins), default=0))


def mixture(newest: PrefixState, found: Sequence[PrefixState]) -> str:
    """Return what to say where other runs' states lie beside the newest one, "" where none do.

    Files that do not say their run count if their iteration is higher: the run may have begun at one of them.
    """
    own = newest.origin.run if newest.origin else 0
    runs = [(one.origin.run, one) for one in found if one.origin and one.origin.run != own]
    others = [one for run, one in runs if run or one.iteration > newest.iteration]
    if not others:
        return ""
    highest = max(others, key=lambda one: one.iteration)
    return (
        f"beside {newest.path}, which was written last, there are {len(others)} snapshot(s) of other runs, up to "
        f"iteration {highest.iteration}; to go on with one of them, give --snapshot {highest.path}"
    )
