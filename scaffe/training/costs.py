"""Costs: a profile's times and work as the passes that `parallel.instances.simulation` simulates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from scaffe.compute import Compute
from scaffe.context import TEST, TRAIN
from scaffe.errors import ScaffeError
from scaffe.net.net import Net
from scaffe.parallel.instances.simulation.layers import LayerCost
from scaffe.parallel.instances.simulation.training import Passes
from scaffe.tools.benchmark import batch_size
from scaffe.tools.work import LayerWork, layer_works
from scaffe.training.replay import Profile, load

WAYS = FORWARD, BACKWARD = 0, 1


def read_passes(path: str, threaded: str | None = None, model: str | None = None, inference: bool = False) -> Passes:
    """Return the passes of a profile of one thread, without the layers that read data.

    - `threaded`: a profile of the same net with more threads. Without one threads divide each layer completely.
    - `model`: the net, for a profile without work.
    - `inference`: forward passes alone.

    Raise ScaffeError for profiles that don't serve.
    """
    profile = load(path)
    if profile.threads > 1:
        raise ScaffeError(f"{path} was measured with {profile.threads} threads; measure it with --threads 1")
    profile = _counted(profile, model, inference) if model else profile
    missing = [name for name in profile.layers if name not in profile.works]
    if missing or not profile.batch:
        lacks = f"operations and bytes of layer '{missing[0]}'" if missing else "batch"
        raise ScaffeError(f"{path} has no {lacks}; give the net with --model, or measure it again")
    names = [name for name, work in profile.works.items() if work.units]
    if not any(profile.layers[name][FORWARD] for name in names):
        raise ScaffeError(f"{path}: no layer but those that read data takes time")
    serial = _serial(profile, load(threaded)) if threaded else {}
    forward = [_cost(profile, name, FORWARD, serial) for name in names]
    backward = [_cost(profile, name, BACKWARD, serial) for name in reversed(names)]
    return Passes(forward if inference else forward + backward, profile.batch)


def _counted(profile: Profile, model: str, inference: bool) -> Profile:
    """Return the profile with the work of a net's layers."""
    net = Net(model, phase=TEST if inference else TRAIN, compute=Compute(engine="reference"))
    works, batch = layer_works(net), batch_size(net)
    net.close()
    return replace(profile, works={name: works[name] for name in profile.layers if name in works}, batch=batch)


def _cost(profile: Profile, name: str, way: int, serial: Mapping[tuple[str, int], float]) -> LayerCost:
    work: LayerWork = profile.works[name]
    return LayerCost(
        name,
        profile.layers[name][way],
        flops=work.flops[way],
        moved=work.moved[way],
        parameters=work.parameters + (way == BACKWARD) * 2 * work.gradients,  # read and written
        gradients=work.gradients if way == BACKWARD else 0.0,
        units=work.units,
        serial=serial.get((name, way), 0.0),
    )


def _serial(profile: Profile, threaded: Profile) -> dict[tuple[str, int], float]:
    """Return the share of each pass that one thread computes alone, by Amdahl's law."""
    if threaded.threads < 2:
        raise ScaffeError(f"{threaded.source} was not measured with several threads; measure it with --threads 2")
    missing = [name for name in profile.layers if name not in threaded.layers]
    if missing:
        raise ScaffeError(f"{threaded.source} has no layer '{missing[0]}', which {profile.source} has")
    return {(name, way): _serial_share(profile, threaded, name, way) for name in profile.layers for way in WAYS}


def _serial_share(profile: Profile, threaded: Profile, name: str, way: int) -> float:
    units = max(1, profile.works[name].units)
    slowest = ceil(units / threaded.threads) / units
    one, several = profile.layers[name][way], threaded.layers[name][way]
    if slowest == 1 or not one:
        return 0.0
    return min(1.0, max(0.0, (several / one - slowest) / (1 - slowest)))
