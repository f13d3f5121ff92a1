"""How a solver computes that is given no Compute: by this process's defaults, on devices that all ranks agree on."""

from __future__ import annotations

from dataclasses import replace

from scaffe import defaults
from scaffe.compute import AUTO, Compute
from scaffe.devices.gpu import Gpu
from scaffe.errors import LaunchError
from scaffe.parallel.world import World, open_world


def start(world: World | None, given: Compute | None) -> tuple[World, Compute]:
    """Return the ranks, by default those of this job, and how they compute. Collective.

    Without a `given` Compute the defaults count, and ranks whose defaults ask for a GPU take one, before MPI starts if
    it has not. If a rank has none, all ranks compute on the CPU. Raise LaunchError where a GPU can't be had.
    """
    gpu, failure = None, None
    try:
        gpu = defaults.default_gpu() if given is None else None
    except LaunchError as error:
        failure = error
    world = world or open_world()
    compute = defaults.get_defaults().compute if given is None else given
    device = compute.device if given is None else AUTO
    cuda, cpu = world.allsums([device == "cuda", device == "cpu"])
    if cuda or (cpu and any(world.gpus)):
        world.take_gpu(world.together(lambda: _unless(failure, gpu)))
    if cuda and given is None:
        compute = replace(compute, device=AUTO)  # the same on all ranks
    return world, compute


def _unless(failure: LaunchError | None, gpu: Gpu | None) -> Gpu | None:
    if failure:
        raise failure
    return gpu
