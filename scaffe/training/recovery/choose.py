"""Choose: the recovery that a run's settings ask for."""

from __future__ import annotations

from scaffe.parallel.run import Run
from scaffe.parallel.world import World, open_world
from scaffe.training.recovery.shrink import Shrink
from scaffe.training.recovery.spares import ShrinkWithSpares
from scaffe.training.recovery.stop import Stop

Recovery = Stop | Shrink


def choose(run: Run, world: World | None) -> Recovery:
    """Return what a solver does when a rank is lost; `world` are its ranks, None for this job's. Collective.

    The settings are not checked yet: what is no Run stops.
    """
    if not (isinstance(run, Run) and run.shrinks):
        return Stop()
    world = world or open_world()
    return (ShrinkWithSpares if run.spares or world.spares is not None else Shrink)(world, run)
