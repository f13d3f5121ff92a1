"""Phase: what a rank is at, as far as the loss of another one concerns it."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """What a rank is at when another one is lost.

    - SET_UP: it builds its parts for the first time. All begin again.
    - BETWEEN: it is between two parts of the job. The next part notices the loss.
    - PART: it does a part of the job. The ranks that are left recover, and do the part again.
    - RECOVERY: it recovers. The recovery begins again.
    - JOINING: a spare that takes a lost rank's place, and has no state yet. The recovery begins again.
    - SKIPPING: a spare that has joined: it goes to the part that was broken off, without doing those before it.
    - GIVEN_UP: a rank was lost at the job's end: nothing is built for those that are left.
    """

    SET_UP = "set-up"
    BETWEEN = "between parts"
    PART = "part"
    RECOVERY = "recovery"
    JOINING = "joining"
    SKIPPING = "skipping"
    GIVEN_UP = "given up"
