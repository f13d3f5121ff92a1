"""Where the time of an iteration goes that its products would not take at the core's rate, layer by layer.

    OMP_NUM_THREADS=1 python jobs/bench/lost.py [--nets resnet50,vgg16] [--compute bf16] [--clock cpu] [--all]

For each net: the time of each kind of layer, that of its products at the rate of a large matrix product by oneDNN,
and the difference, which is lost; then the ten layers that lose most, or with --all every layer. The update
has a line of its own.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
from core_rate import core_rate
from engine import NETS
from iteration import build, update, zoo
from iteration_times import CLOCKS
from threadpoolctl import threadpool_limits

import scaffe
from scaffe.compute import NUMBERS
from scaffe.devices.choices import FIXED
from scaffe.tools import benchmark
from scaffe.tools.work import layer_works

MOST = 10  # layers printed without --all


class LayerTime:
    """The milliseconds of a layer, or of several: all of them, and those that products take at the core's rate."""

    def __init__(self, total: float = 0.0, products: float = 0.0):
        self.total, self.products = total, products

    @property
    def lost(self) -> float:
        """The milliseconds that products do not explain."""
        return self.total - self.products

    def __add__(self, other: LayerTime) -> LayerTime:
        return LayerTime(self.total + other.total, self.products + other.products)

    def line(self, name: str, whole: float) -> str:
        """Return a line of the table; `whole` are the milliseconds of an iteration."""
        part = f"{self.products / self.total:8.2f}" if self.products else " " * 8
        return f"{name:32} {self.total:9.1f} {self.products:9.1f} {self.lost:9.1f} {self.lost / whole:6.1%} {part}"


class Rounds:
    """The median milliseconds of each layer, of the update and of a whole iteration, and the core's median rate."""

    def __init__(self, net: scaffe.Net, numbers: str, rounds: int, clock: Callable[[], float]):
        self.net, self.update, self.clock = net, update(net), clock
        product = core_rate(numbers)
        assert product is not None, "engine onednn is there, so oneDNN is"
        net.keep_diffs = False
        for _ in range(benchmark.WARM_UP):
            self._iterate()
        found = [(*self._iterate(), product.once(clock)) for _ in range(rounds)]
        layers, updates, wholes, rates = zip(*found, strict=True)
        self.layers = 1e3 * np.median(layers, 0)
        self.updating, self.whole = 1e3 * float(np.median(updates)), 1e3 * float(np.median(wholes))
        self.rate = float(np.median(rates))  # GFLOP/s

    @np.errstate(all="ignore")
    def _iterate(self) -> tuple[np.ndarray, float, float]:
        """Run an iteration; return the seconds of its layers, of its update and of all of it."""
        net, start = self.net, self.clock()
        layers, order = np.zeros(len(net.layers)), range(len(net.layers))
        net.clear_param_diffs()
        benchmark.time_layers(order, net.forward_layer, layers, net.engine.wait, self.clock)
        net.context.batch_number += 1
        benchmark.time_layers(reversed(order), net.backward_layer, layers, net.engine.wait, self.clock)
        done = self.clock()
        self.update()
        end = self.clock()
        return layers, end - done, end - start

    def layer_times(self) -> list[tuple[str, str, LayerTime]]:
        """Return name, type and time of each layer."""
        works = layer_works(self.net)
        return [
            (layer.name, layer.type, LayerTime(total, sum(works[layer.name].flops) / self.rate / 1e6))
            for layer, total in zip(self.net.layers, self.layers, strict=True)
        ]


def lines(name: str, numbers: str, iterations: int, every: bool, clock: Callable[[], float]) -> Iterator[str]:
    """Iterate over the lines of a net's table."""
    rounds = Rounds(build(zoo(name, NETS[name]), "onednn", FIXED, numbers), numbers, iterations, clock)
    layers, whole, rate = rounds.layer_times(), rounds.whole, rounds.rate
    yield f"{name}, {numbers}: {whole:.0f} ms an iteration, {rate:.0f} GFLOP/s"
    yield f"{'':32} {'ms':>9} {'products':>9} {'lost':>9}         of rate"
    kinds: dict[str, LayerTime] = defaultdict(LayerTime)
    for _, kind, taken in layers:
        kinds[kind] += taken
    by_lost = sorted(kinds.items(), key=lambda item: -item[1].lost)
    for kind, taken in [*by_lost, ("update", LayerTime(rounds.updating))]:
        yield taken.line(kind, whole)
    ranked = layers if every else sorted(layers, key=lambda one: -one[2].lost)[:MOST]
    for layer, kind, taken in ranked:
        yield taken.line(f"  {layer} ({kind})", whole)


def main() -> None:
    """Print the tables."""
    every = "every layer, not the ten that lose most"
    print_tables(lines, __doc__.splitlines()[0], "alexnet,caffenet,googlenet,resnet50,vgg16", every)


def print_tables(lines: Callable[..., Iterator[str]], description: str, nets: str, every: str) -> None:
    """Print the lines of each net that the command line names, by default `nets`; `every` is the help of --all."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--nets", default=nets, help="default: %(default)s")
    parser.add_argument("--compute", default="float32", choices=[one for one in NUMBERS if one != "tf32"])
    parser.add_argument("--iterations", type=int, default=5, metavar="N")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: for a machine with other work")
    parser.add_argument("--all", action="store_true", help=every)
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
