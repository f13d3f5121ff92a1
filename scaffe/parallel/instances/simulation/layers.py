"""LayerCost: what one pass of a layer costs, measured on one core, and the load that it is for an instance's cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from scaffe.parallel.instances.simulation.events import Load
from scaffe.parallel.instances.simulation.machine import Machine

FASTEST = 25e9  # bytes a second that a core can have moved from and to memory; more came from its caches
INTENSIVE = 4.0  # operations for each byte: from there on a core's operations limit a layer, below its bytes do


@dataclass(frozen=True)
class LayerCost:
    """A layer's forward or backward pass over the batch of the profile.

    - `seconds`: on one core; `serial`: the share of them in which one thread works alone.
    - `flops`: operations of its matrix products.
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

    @property
    def computes(self) -> bool:
        """Whether the layer is compute-intensive; otherwise it is access-intensive (ParaX, section 3)."""
        return self.flops >= INTENSIVE * (self.moved + self.parameters) and self.flops > 0

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

    Compute-intensive layers keep their times in proportion to each other, and so do access-intensive ones.
    """
    measured = [_from_memory(cost) for cost in costs]
    computing, moving = compute_rate(measured), access_rate(measured)
    faster = machine.core_gflops * 1e9 / computing if machine.core_gflops and computing else 1.0
    wider = machine.core_bandwidth / moving if machine.core_bandwidth and moving else 1.0
    scaled = [replace(cost, seconds=cost.seconds / (faster if cost.computes else wider)) for cost in measured]
    if not machine.unfused:
        return scaled
    rate = machine.core_bandwidth or moving or FASTEST
    return [one if one.computes else _all_bytes(cost, rate) for one, cost in zip(scaled, costs, strict=True)]


def _all_bytes(cost: LayerCost, rate: float) -> LayerCost:
    """Return the cost with the time in which a core moves all its bytes at a rate."""
    return replace(cost, seconds=(cost.moved + cost.parameters) / rate)


def compute_rate(costs: Sequence[LayerCost]) -> float:
    """Return the operations a second of compute-intensive layers; 0 if there is none."""
    return _rate(costs, [cost.flops if cost.computes else 0.0 for cost in costs])


def access_rate(costs: Sequence[LayerCost]) -> float:
    """Return the bytes a second of access-intensive layers; 0 if they move nothing."""
    return _rate(costs, [0.0 if cost.computes else cost.moved + cost.parameters for cost in costs])


def _rate(costs: Sequence[LayerCost], amounts: Sequence[float]) -> float:
    """Return amounts a second over the layers that have any."""
    seconds = sum(cost.seconds for cost, amount in zip(costs, amounts, strict=True) if amount)
    return sum(amounts) / seconds if seconds else 0.0


def _from_memory(cost: LayerCost) -> LayerCost:
    """Return the cost with no more bytes than a core can have moved in its time."""
    total = cost.moved + cost.parameters
    part = min(1.0, cost.seconds * FASTEST / total) if total else 1.0
    return replace(cost, moved=cost.moved * part, parameters=cost.parameters * part)
