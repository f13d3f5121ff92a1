"""Set-up: the ranks agree on all settings of a training, before any of its parts is built."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from scaffe.compute import AUTO, Compute
from scaffe.devices.choices import Choices
from scaffe.files import snapshot
from scaffe.monitor.log import log
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.training.auto_instances import AutoInstances
from scaffe.training.job import Job
from scaffe.training.recovery.ranks_left import check_shrink
from scaffe.training.recovery.spares import check_spares
from scaffe.training.settings import Settings
from scaffe.training.solver_param import checked, chosen_seed, doubts

Given = str | os.PathLike[str] | SolverParameter


def agreed(given: Given, world: World, settings: Callable[[], Settings]) -> Job:
    """Return the job that all ranks agree on; `settings()` makes its settings, unless a record is none. Collective.

    Raise ScaffeError for a wrong value.
    """
    found, param = world.together(
        lambda: _checked(given, world, settings),
        alike=lambda checked: {"the solver": str(checked[1])} | checked[0].agreed(),
    )
    for doubt in doubts(param) if world.is_root else ():
        log.warning("%s", doubt)
    compute = found.compute
    if compute.threads:
        world.together(lambda: world.take_threads(compute.threads))
    auto_instances = AutoInstances(world, found.instances, compute.deterministic)
    choices = world.on_root(lambda: Choices(compute.plan, compute.plan_seconds))
    seed, lock = chosen_seed(world, param), snapshot.lock(param.snapshot_prefix)
    return Job(world, param, found, _by_layers(found), auto_instances, choices, lock, seed)


def _checked(given: Given, world: World, settings: Callable[[], Settings]) -> tuple[Settings, SolverParameter]:
    """Return the settings and the solver's fields, all checked."""
    found = settings()
    found.run.check_reduce()
    found.check_owners()
    found.run.check_gradients()
    found.check_broadcasts()
    found.check_stall()
    found.check_launch()
    check_shrink(world, found.run)
    check_spares(world, found.run)
    return found, checked(given)


def _by_layers(settings: Settings) -> Compute:
    """Return how nets compute: without graphs where layers are timed, which then go one by one."""
    compute = settings.compute
    if compute.graphs == AUTO and (settings.watching.timeline or compute.profile):
        return replace(compute, graphs="off")
    return compute
