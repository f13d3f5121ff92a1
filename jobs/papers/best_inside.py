"""Best, inside: NUMA-Caffe's and ParaX's designs in their one machine, against all divisions into instances.

Cores, memory and barriers are simulated (docs/simulate-instances.md), on machines with the numbers of numa-caffe-9 and
parax-11. NUMA-Caffe's solvers are instances of a domain's cores whose gradients go up a tree; ParaX's are instances of
one core with a gradient server.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numa_caffe_9
import parax_11
import parax_13
from best_timed import Timed, row, value
from figure import Data
from numa_nodes import BATCHES, BOXES, NETS, Box

from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.predict import Predicted, predict
from scaffe.parallel.instances.simulation.training import Division, Passes

SOLVERS = "SB", "BW", "AMD"  # NUMA-Caffe's machines, but for KNL, whose two memories are not simulated
NET, RESNET = "AlexNet", "ResNet-50"
GATHERS = "slices", "tree:2", "server"
TREE, SERVER = "tree:2", "server"
TOTAL = 1792  # images of ParaX's machine in an iteration


def of_box(box: Box) -> Machine:
    """Return one of NUMA-Caffe's machines, with the numbers of numa-caffe-9."""
    figure = numa_caffe_9.FIGURE
    rate = box.flops * figure.value("efficiency") / 1e9
    rates = {"core_gflops": rate, "core_bandwidth": box.core, "link": box.link}
    waits = {"barrier": figure.fork(box, 1), "jitter": parax_11.FIGURE.value("jitter")}
    return Machine(box.nodes * box.cores, box.nodes, box.memory, **rates, **waits, unfused=True)


def searched(passes: Passes, machine: Machine, images: int, sizes: tuple[int, ...]) -> Predicted:
    """Return the fastest division of a machine's cores: the best size of an instance, then the best gather."""
    each = [
        predict(passes, machine, Division(x, images, divided=True), 1) for x in sizes if machine.cores // x <= images
    ]
    x = max(each, key=lambda one: one.rate).division.x
    rest = [predict(passes, machine, Division(x, images, divided=True, gather=name), 1) for name in GATHERS[1:]]
    return max([*each, *rest], key=lambda one: one.rate)


def timed(one: Predicted) -> Timed:
    """Return a prediction with its error."""
    gather = f", gather {one.division.gather}" if one.gathers else ""
    cores = "a core" if one.division.x == 1 else f"{one.division.x} cores"
    return Timed(one.seconds, f"{one.instances} instances of {cores}{gather}", value("error, instances"))


@cache
def of_solvers(name: str) -> tuple[Predicted, Predicted]:
    """Return NUMA-Caffe's way on one of its machines, a solver for each domain, and the best."""
    box, images = BOXES[name], BATCHES[NET]
    machine, passes = of_box(box), parax_11.passes(False, NETS[NET])
    own = predict(passes, machine, Division(box.cores, images, divided=True, gather=TREE), 1)
    return own, searched(passes, machine, images, tuple(machine.sizes()))


@cache
def of_parax() -> tuple[Predicted, Predicted]:
    """Return ParaX's way, an instance for each core, and the best."""
    machine, passes = parax_11.machine(2), parax_13.passes(RESNET, False)
    own = predict(passes, machine, Division(1, TOTAL, divided=True, gather=SERVER), 1)
    return own, searched(passes, machine, TOTAL, parax_13.SIZES)


def parax_seconds() -> float:
    """Return the seconds in which a socket of ParaX's machine computes its part of a batch, at its best."""
    return of_parax()[1].seconds


def rows() -> Iterator[Data]:
    """Yield a row for each machine: own way, best way."""
    for name in SOLVERS:
        own, found = of_solvers(name)
        yield _row("NUMA-Caffe", name, BOXES[name].nodes, own, found) | {"net": NETS[NET], "batch": BATCHES[NET]}
    yield _row("ParaX", "8280", 2, *of_parax()) | {"net": parax_13.IMAGENET[RESNET], "batch": TOTAL}


def _row(title: str, machine: str, domains: int, own: Predicted, found: Predicted) -> Data:
    made = row(title, machine, domains, timed(own), timed(found), found.seconds, domains)
    return made | {"kind": "inside"}
