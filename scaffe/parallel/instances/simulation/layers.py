"""LayerCost: what one pass of a layer costs, measured on one core, and the load that it is for an instance's cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from scaffe.parallel.instances.simulation.events import Load
from scaffe.parallel.instances.simulation.machine import Machine

FASTEST = 25e9  # bytes a second that a core can have moved from and to memory; more came from its caches


@dataclass(frozen=True)
class LayerCost:
    """A layer's forward or backward pass over the batch of the profile.

    - `seconds`: on one core; `serial`: the share of them in which one thread works alone.
    - `flops`: operations of its matrix products; 0 for a layer without.
    - `moved`: bytes of blobs, in proportion to the batch; `parameters`: bytes of parameters, which are not.
    - `gradients`: bytes that the instances sum after it.
    - `units`: parts into which threads divide it.
    """

    name: str
    seconds: float
    flops: float = 0.0
    moved: float = 0.0
    parameters: float = 0.0
    gradients: float = 0.0
    units: int = 1
    serial: float = 0.0

    def load(self, share: float, x: int, machine: Machine) -> Load:
        """Return the load of `share` batches for x cores, which divide the layer's units.

        The thread with most units counts. Cores that cover several domains find an equal part of the bytes in each.
        """
        units = max(1, round(self.units * share))
        slowest = ceil(units / x) / units
        seconds = self.seconds * share * (self.serial + (1 - self.serial) * slowest)
        moved = self.moved * share + self.parameters
        remote = 1 - 1 / machine.covered(x)
        return Load(max(seconds, moved / (x * FASTEST), moved * remote / machine.link), moved, x)


def on_machine(costs: Sequence[LayerCost], machine: Machine) -> list[LayerCost]:
    """Return the costs on a core of the machine, without the traffic that the caches must have served.

    Layers with matrix products keep their times in proportion to each other, and so do the others.
    """
    costs = [_from_memory(cost) for cost in costs]
    products = product_rate(costs)
    others = other_rate(costs)
    faster = machine.core_gflops * 1e9 / products if machine.core_gflops and products else 1.0
    wider = machine.core_bandwidth / others if machine.core_bandwidth and others else 1.0
    return [replace(cost, seconds=cost.seconds / (faster if cost.flops else wider)) for cost in costs]


def product_rate(costs: Sequence[LayerCost]) -> float:
    """Return the operations a second of the layers with matrix products; 0 if there is none."""
    return _rate(costs, [cost.flops for cost in costs])


def other_rate(costs: Sequence[LayerCost]) -> float:
    """Return the bytes a second of the layers without matrix products; 0 if they move nothing."""
    return _rate(costs, [0.0 if cost.flops else cost.moved + cost.parameters for cost in costs])


def _rate(costs: Sequence[LayerCost], amounts: Sequence[float]) -> float:
    """Return amounts a second over the layers that have any."""
    seconds = sum(cost.seconds for cost, amount in zip(costs, amounts, strict=True) if amount)
    return sum(amounts) / seconds if seconds else 0.0


def _from_memory(cost: LayerCost) -> LayerCost:
    """Return the cost with no more bytes than a core can have moved in its time."""
    total = cost.moved + cost.parameters
    part = min(1.0, cost.seconds * FASTEST / total) if total else 1.0
    return replace(cost, moved=cost.moved * part, parameters=cost.parameters * part)
