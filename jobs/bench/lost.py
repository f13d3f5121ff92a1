"""Where the time of an iteration goes that its products would not take at the core's rate, layer by layer.

    OMP_NUM_THREADS=1 python jobs/bench/lost.py [--nets resnet50,vgg16] [--compute bf16] [--clock cpu] [--all]

For each net: the time of each kind of layer, that of its products at the rate of a large matrix product by oneDNN,
and the difference, which is lost; then the ten layers that lose most, or with --all every layer. The update, and what
an iteration takes beyond its layers, are lines of their own.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Callable, Iterator

from core_rate import core_rate
from engine import NETS
from iteration import build, passes, update, zoo
from iteration_times import CLOCKS, IterationTimes
from threadpoolctl import threadpool_limits

import scaffe
from scaffe.choices import FIXED
from scaffe.compute import NUMBERS
from scaffe.tools import benchmark
from scaffe.tools.work import layer_works

MOST = 10  # layers printed without --all


class Loss:
    """The milliseconds of a layer, or of several: all of them, and those that products take at the core's rate."""

    def __init__(self, total: float = 0.0, products: float = 0.0):
        self.total, self.products = total, products

    @property
    def lost(self) -> float:
        """The milliseconds that products do not explain."""
        return self.total - self.products

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.total + other.total, self.products + other.products)

    def line(self, name: str, whole: float) -> str:
        """Return a line of the table; `whole` are the milliseconds of an iteration."""
        part = f"{self.products / self.total:8.2f}" if self.products else " " * 8
        return f"{name:32} {self.total:9.1f} {self.products:9.1f} {self.lost:9.1f} {self.lost / whole:6.1%} {part}"


def losses(net: scaffe.Net, times: benchmark.Times, rate: float) -> Iterator[tuple[str, str, Loss]]:
    """Iterate over name, type and loss of each layer; `rate` is the core's, FLOP/s."""
    works = layer_works(net)
    for layer, forward, backward in zip(net.layers, times.forward, times.backward, strict=True):
        yield layer.name, layer.type, Loss(forward + backward, 1e3 * sum(works[layer.name].flops) / rate)


def lines(name: str, numbers: str, iterations: int, every: bool, clock: Callable[[], float]) -> Iterator[str]:
    """Iterate over the lines of a net's table."""
    net, product = build(zoo(name, NETS[name]), "onednn", FIXED, numbers), core_rate(numbers)
    assert product is not None, "engine onednn is there, so oneDNN is"
    times = benchmark.measure(net, iterations, clock)
    turns = IterationTimes({"passes": passes(net), "update": update(net)}, {numbers: product}, iterations, clock)
    updating = 1e3 * turns.median("update")
    whole, rate = 1e3 * turns.median("passes") + updating, turns.rate(numbers)
    layers = [*losses(net, times, 1e9 * rate)]
    yield f"{name}, {numbers}: {whole:.0f} ms an iteration, {rate:.0f} GFLOP/s"
    yield f"{'':32} {'ms':>9} {'products':>9} {'lost':>9}         of rate"
    kinds: dict[str, Loss] = defaultdict(Loss)
    for _, kind, loss in layers:
        kinds[kind] += loss
    by_loss = sorted(kinds.items(), key=lambda item: -item[1].lost)
    rest = whole - updating - sum(loss.total for loss in kinds.values())
    for kind, loss in [*by_loss, ("update", Loss(updating)), ("beyond layers and update", Loss(rest))]:
        yield loss.line(kind, whole)
    ranked = layers if every else sorted(layers, key=lambda one: -one[2].lost)[:MOST]
    for layer, kind, loss in ranked:
        yield loss.line(f"  {layer} ({kind})", whole)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default="alexnet,caffenet,googlenet,resnet50,vgg16", help="default: %(default)s")
    parser.add_argument("--compute", default="float32", choices=[one for one in NUMBERS if one != "tf32"])
    parser.add_argument("--iterations", type=int, default=5, metavar="N")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: for a machine with other work")
    parser.add_argument("--all", action="store_true", help="every layer, not the ten that lose most")
    arguments = parser.parse_args()
    names = arguments.nets.split(",")
    if unknown := [name for name in names if name not in NETS]:
        parser.error(f"unknown nets {' '.join(unknown)}; known: {' '.join(NETS)}")
    threadpool_limits(int(os.environ.get("OMP_NUM_THREADS", "1")))
    clock = CLOCKS[arguments.clock]
    for name in names:
        print(*lines(name, arguments.compute, arguments.iterations, arguments.all, clock), sep="\n", flush=True)


if __name__ == "__main__":
    main()
