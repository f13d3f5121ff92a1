"""How many bytes the layers that memory bounds move in an iteration, beside the least possible.

    OMP_NUM_THREADS=1 python jobs/bench/moved.py [--nets alexnet,googlenet] [--compute bf16] [--clock cpu] [--all]

For each kind of layer without products, and with --all for each such layer:

- least: the bytes of its blobs, each once in each pass that must read or write it, in the blob's own numbers. A layer
  that another one's primitive computes has them too, but moves none;
- moved: the bytes that oneDNN's primitives read and write; what numpy moves is not counted;
- the time, and the bytes moved in it.

An update reads gradient, values and history, and writes the last two: 20 bytes a parameter. A copy bounds the rates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from engine import NETS
from iteration import build, zoo
from iteration_times import seconds
from lost import Rounds, print_tables

import scaffe
from scaffe.blob import Blob
from scaffe.devices.choices import FIXED
from scaffe.devices.kernel_run import KernelRun
from scaffe.engines.onednn import library as lib
from scaffe.tools.work import layer_works

READ_AGAIN = "ReLU", "LRN", "BatchNorm", "Scale"  # their gradients need values: the bottom's, or the top's
UPDATE = 20  # bytes of a parameter
COPIED, COPIES = 1 << 25, 5  # elements of a copy; copies


def least(net: scaffe.Net, i: int) -> int:
    """Return the bytes that the forward and the backward pass of layer i must move."""
    layer, node, bottoms, tops = net.layers[i], net.nodes[i], net.bottoms[i], net.tops[i]
    found = 0 if layer.views else _bytes(net, (*bottoms, *tops))
    if node.backward:
        below = [blob for blob, down in zip(bottoms, node.down, strict=True) if down]
        found += _bytes(net, (*tops, *below, *(bottoms if layer.type in READ_AGAIN else ())))
    return found


def _bytes(net: scaffe.Net, blobs: Sequence[Blob]) -> int:
    return sum(blob.count * (4 if net.engine.kind_of(blob) == lib.F32 else 2) for blob in blobs)


def moved(net: scaffe.Net) -> list[int]:
    """Return the bytes that the primitives of each layer move in an iteration."""
    found = [0] * len(net.layers)

    def watch(i: int) -> None:
        def see(run: KernelRun) -> None:
            found[i] += run.nbytes

        net.engine.watcher = see

    net.clear_param_diffs()
    for i in range(len(net.layers)):
        watch(i)
        net.forward_layer(i)
    net.context.batch_number += 1
    for i in reversed(range(len(net.layers))):
        watch(i)
        net.backward_layer(i)
    net.engine.watcher = None
    return found


def copy_rate(clock: Callable[[], float]) -> float:
    """Return the GB/s of a copy of 128 MB, read and written: the median of a few."""
    source, target = np.ones(COPIED, np.float32), np.ones(COPIED, np.float32)
    return float(np.median([8e-9 * COPIED / seconds(lambda: np.copyto(target, source), clock) for _ in range(COPIES)]))


def line(name: str, numbers: np.ndarray) -> str:
    """Return a line of the table: least and moved bytes, milliseconds."""
    needed, bytes_moved, taken = numbers
    rate = f"{bytes_moved / taken / 1e6:8.1f}" if taken else ""
    return f"{name:32} {needed / 1e6:9.1f} {bytes_moved / 1e6:9.1f} {taken:9.1f} {rate}"


def lines(name: str, numbers: str, iterations: int, every: bool, clock: Callable[[], float]) -> Iterator[str]:
    """Iterate over the lines of a net's table."""
    net = build(zoo(name, NETS[name]), "onednn", FIXED, numbers)
    rounds = Rounds(net, numbers, iterations, clock)
    rates = f"{rounds.rate:.0f} GFLOP/s, a copy {copy_rate(clock):.1f} GB/s"
    yield f"{name}, {numbers}: {rounds.whole:.0f} ms an iteration, {rates}"
    yield f"{'':32} {'least MB':>9} {'moved MB':>9} {'ms':>9} {'GB/s':>8}"
    kinds: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))
    works, found = layer_works(net), moved(net)
    layers = []
    for i, layer in enumerate(net.layers):
        if not works[layer.label].flops[0]:
            layers.append((f"  {layer.name} ({layer.type})", np.array([least(net, i), found[i], rounds.layers[i]])))
            kinds[layer.type] += layers[-1][1]
    ranked = sorted(kinds.items(), key=lambda item: -item[1][2])
    updated = UPDATE * net.packed.flat.size
    for kind, sums in [*ranked, ("update", np.array([updated, updated, rounds.updating])), *(layers if every else [])]:
        yield line(kind, sums)


def main() -> None:
    """Print the tables."""
    print_tables(lines, __doc__.splitlines()[0], "alexnet,googlenet,resnet50", "each layer too")


if __name__ == "__main__":
    main()
