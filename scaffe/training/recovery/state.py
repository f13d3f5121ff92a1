"""State and Mark: how far a rank has come, by which the ranks that are left agree on where to go on.

State is what ranks tell each other in a recovery, and what a mirror carries. It is never changed, only replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scaffe.blob import on_host
from scaffe.parallel.instances.instances import Instances


class Outcome(NamedTuple):
    """What a part of the job that is done has returned."""

    result: object = None


class State(NamedTuple):
    """How far a rank has come.

    - `done`: iterations whose updates it has applied; `handled`: those after which snapshots and requests were.
    - `told`: those after which the last one was displayed and measured; `outputs`: the train net's then.
    - `tested`: the last iteration before which the test nets were run; `tests_done`: how often.
    - `losses`: the last losses; `requests`: those of any rank that are not yet granted, or not all the way.
    - `begun`: iterations that it has begun; `stopped`: Solver's. `calls`: whether users' functions are called.
    - `outcome`: that of the part of the job that was broken off, None where it is not done.
    - `has_state`: whether it has the parameters and the history of `done` iterations.
    - `mirrored`: the iteration of the mirror that it has, -1 without one; `set_back`: whether this is a mirror's state.
    - `stale`: whether it lacks parameters that were changed on the root, outside an iteration.
    - `is_everywhere`: of the state that counts, whether all ranks have it.
    - `instances`: those that are settled on, None while they are timed.
    """

    done: int
    handled: int
    told: int
    tested: int
    tests_done: int
    losses: tuple[float, ...]
    outputs: dict[str, np.ndarray]
    requests: frozenset[str]
    begun: int
    stopped: str
    calls: bool
    outcome: Outcome | None
    has_state: bool
    mirrored: int
    set_back: bool = False
    stale: bool = False
    is_everywhere: bool = False
    instances: Instances | None = None


class Mark(NamedTuple):
    """A rank at the begin of an iteration: its data layers' positions, its statistics, and the last losses."""

    iter: int
    samples: list[int]
    batch_number: int
    statistics: np.ndarray
    losses: tuple[float, ...]


def on_its_way(state: State, mark: Mark) -> tuple[State, Mark]:
    """Return what is sent with a mirror's state."""
    return state, mark._replace(statistics=on_host(mark.statistics))


def furthest(states: Sequence[State]) -> int:
    """Return the rank whose state counts: the lowest of those that have done most, if any has the state of them."""
    return max(range(len(states)), key=lambda rank: (states[rank].has_state, states[rank].done, -rank))


def agreed(counts: State, states: Sequence[State]) -> State:
    """Return what all ranks, of these states, take over from the one that counts."""
    told = max([counts.told, *(one.told for one in states if one.done == counts.done)])
    return counts._replace(
        requests=frozenset().union(*(one.requests for one in states)),
        calls=any(one.calls for one in states),
        outcome=counts.outcome if counts.has_state else None,
        is_everywhere=all(one.has_state and one.done == counts.done and not one.stale for one in states),
        told=told,
    )
