"""Predict: the throughput of each division of a machine's cores into instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from scaffe.errors import ScaffeError
from scaffe.monitor.log import log
from scaffe.parallel.instances.simulation.events import Usage
from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.training import Division, Passes, Training

MOST_LOADS = 1_000_000  # of instances' passes: 5 to 10 minutes of a processor
LONG = 100_000  # of a simulation that says so
LATE = 0.0, 0.01, 0.03, 0.1  # how late the last launch group starts, in parts of an iteration


@dataclass(frozen=True)
class Predicted:
    """A simulated division: its number of instances, images a second, seconds of an iteration, and use over time.

    `gathers` says whether gradients are gathered. `bandwidth_used` and `cores_used` are means over time, in parts of
    what the machine has, and `peak` is the greatest bandwidth.
    """

    division: Division
    instances: int
    gathers: bool
    rate: float
    seconds: float
    usage: Usage
    bandwidth_used: float
    peak: float
    cores_used: float


def predict(passes: Passes, machine: Machine, division: Division, iterations: int) -> Predicted:
    """Simulate some iterations of a division."""
    training = Training(passes, machine, division, iterations)
    usage = training.run()
    most = machine.bandwidth * machine.domains
    return Predicted(
        division,
        training.size,
        training.gather is not None,
        iterations * training.images / usage.total,
        usage.total / iterations,
        usage,
        usage.mean(usage.bandwidth) / most,
        max(usage.bandwidth) / most,
        usage.mean(usage.cores) / machine.cores,
    )


def over_sizes(
    passes: Passes, machine: Machine, division: Division, gathers: Sequence[str], iterations: int
) -> Iterator[list[Predicted]]:
    """Iterate over the sizes of an instance, one core first; each with a prediction for each gather.

    Sizes that leave an instance without an image are left out.
    """
    for x in machine.sizes():
        size = machine.cores // x
        if division.divided and division.images < size:
            continue
        some = gathers if size > 1 and passes.gradients else gathers[:1]
        yield [predict(passes, machine, replace(division, x=x, gather=one), iterations) for one in some]


def over_delays(
    passes: Passes, machine: Machine, best: Predicted, groups: int, delays: Sequence[float], iterations: int
) -> list[Predicted]:
    """Return the predictions of a division with launch groups, for each delay; `best` is that without any."""
    late = (replace(best.division, groups=groups, delay=delay) for delay in delays)
    return [predict(passes, machine, one, iterations) if one.delay else best for one in late]


def delays_for(seconds: float, groups: int) -> list[float]:
    """Return the delays to try for iterations of so many seconds."""
    return [part * seconds / max(1, groups - 1) for part in LATE]


def over_cores(
    passes: Passes, machine: Machine, division: Division, iterations: int
) -> Iterator[tuple[int, Predicted, Predicted]]:
    """Iterate over numbers of cores: the number, an instance on each core, one instance on all (ParaX, figure 13)."""
    for cores in machine.sizes():
        part = replace(machine, cores=cores, domains=machine.covered(cores))
        if division.divided and division.images < cores:
            continue
        each, one = (predict(passes, part, replace(division, x=x), iterations) for x in (1, cores))
        yield cores, each, one


def check_loads(
    passes: Passes, machine: Machine, division: Division, ways: int, groups: int, delays: int, iterations: int
) -> None:
    """Raise ScaffeError where there are too many loads to simulate; log their number where that takes minutes.

    `ways`: gathers to compare; `delays`: those of `groups` launch groups.
    """
    if division.divided:  # sizes with fewer images than instances are left out
        sizes = [x for x in machine.sizes() if machine.cores // x <= division.images]
    else:
        sizes = machine.sizes()
    instances = sum(machine.cores // x for x in sizes) * (ways + delays * (groups > 1)) + sum(machine.sizes())
    total = instances * len(passes.costs) * iterations
    if total > MOST_LOADS:
        raise ScaffeError(
            f"{total / 1e6:.1f} million loads of {machine.cores} cores are too many to simulate "
            f"(most: {MOST_LOADS / 1e6:g}): give fewer --cores, --iterations, --gathers or --launch-delays"
        )
    if total > LONG:
        log.info("%.1f million loads are to be simulated, which takes minutes", total / 1e6)
