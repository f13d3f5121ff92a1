"""NUMA-Caffe, table 5: loads from other nodes, by system.

Counted from the layers' shapes: what a thread loads and its own node doesn't hold.

- BVLC: the threads of all nodes share a convolution's products of one image. They load the columns (of kernels of
  1 x 1: the image) for the forward pass and for the weights' gradient, and the top's gradient for both gradients; each
  node loads all of the factor that the threads do not divide. Then one thread loads the columns' gradient, which the
  others have written. The other layers are on the first node, as their blobs are.
- Intel: threads on all nodes load the blobs of their images: im2col the bottom in both passes, a convolution's
  gradients the top's, other layers their bottoms and gradients. Columns are a thread's own; they are loaded again if
  they don't fit the cache. The node of a line is any of N, so (N - 1) / N of the loads are remote.
- NUMA: gradients go up, weights down, and the records of the batch come from the node of the reader.

Weights are loaded once by a node; they are counted for the inner products, where they are more than the blobs.
"""

from __future__ import annotations

from typing import Any

from drawing import MODEL, OURS, PAPER, bars
from figure import ASSUMED, Data, Figure, Input, S
from numa_nodes import BATCHES, BOXES, CONVOLUTION, INNER, NETS, Part, of_box, of_net, parts, weights
from verdicts import DIFFERS, REPRODUCED, SHAPE, Judged

BOX, ERROR = BOXES["BW"], 1.0
TABLE_5 = {  # fall of remote accesses against BVLC, %
    "Intel": {"CIFAR-10": 90.18, "AlexNet": 89.37, "GoogLeNet": 83.73},
    "NUMA": {"CIFAR-10": 96.05, "AlexNet": 92.09, "GoogLeNet": 91.47},
}


def loaded(layer: Part, threads: int) -> float:
    """Return the bytes that Intel-Caffe's threads load for an image in a layer, but for an inner product's."""
    if layer.type == INNER:
        return 0.0
    back = (layer.bottom + layer.top) * (layer.ways > 1)
    if layer.type == CONVOLUTION:
        images = 2 * layer.bottom  # im2col in both passes, or a kernel of 1 x 1, whose image is the factor
        return images + layer.top * (layer.ways > 1) + layer.unfolded(BOX.cache, threads) / 2
    if layer.type == "Pooling":
        back = layer.top + layer.places  # its gradient, and which bottom was the greatest
    return layer.bottom + back


def shared(layer: Part, nodes: int) -> float:
    """Return the bytes of an image that BVLC-Caffe's products load from the first node, and the first from theirs."""
    if layer.type != CONVOLUTION:
        return 0.0
    return sum(layer.fetched(nodes)) + (nodes - 1) / nodes * layer.columns * (layer.ways > 2)


def of_inner(net: str) -> float:
    """Return the bytes that an iteration's inner products load: weights twice, blobs."""
    inner = [layer for layer in parts(net) if layer.type == INNER]
    return 2 * weights(net, INNER) + BATCHES[net] * sum(2 * layer.bottom + 2 * layer.top for layer in inner)


def remote(system: str, net: str, nodes: int) -> float:
    """Return the bytes that an iteration loads from other nodes."""
    far, batch = (nodes - 1) / nodes, BATCHES[net]
    if system == "NUMA":
        return 2 * weights(net) * (nodes - 1) + far * batch * parts(net)[0].top
    inner = of_inner(net)
    if system == "BVLC":
        return far * inner + batch * sum(shared(layer, nodes) for layer in parts(net))
    return far * (inner + batch * sum(loaded(layer, BOX.cores) for layer in parts(net)))


class RemoteLoads(Figure):
    """What crosses the links."""

    id, tag = "numa-caffe-5", S
    inputs = (
        *(one for one in of_box("BW", BOX) if one.name == "BW: cache"),
        *map(of_net, NETS),
        Input("error", ERROR, "points", ASSUMED, "to be the number, beside the order"),
    )

    def model(self, measured: Data) -> Data:
        """Return the falls against BVLC by system and net, percent, on all nodes."""
        loads = {net: {system: remote(system, net, BOX.nodes) for system in ("BVLC", *TABLE_5)} for net in NETS}
        return {
            system: {net: 100 * (1 - loads[net][system] / loads[net]["BVLC"]) for net in NETS} for system in TABLE_5
        }

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the falls: the number within a point, in shape where NUMA-Caffe's is the highest in each net."""
        numa, intel = modelled["NUMA"], modelled["Intel"]
        off = max(abs(numa[net] - TABLE_5["NUMA"][net]) for net in NETS)
        verdict = REPRODUCED if off <= ERROR else SHAPE if all(numa[net] > intel[net] for net in NETS) else DIFFERS
        each = ", ".join(f"{numa[net]:.0f}" for net in NETS)
        return Judged(verdict, f"{each} % below; Intel-Caffe {', '.join(f'{intel[net]:.0f}' for net in NETS)} %")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw table 5 beside the falls that are counted."""
        rows = [
            (f"{system}, {how}", [found[system][net] for net in NETS], shade)
            for system, shades in {"NUMA": (PAPER, OURS), "Intel": ("grey", MODEL)}.items()
            for (how, found), shade in zip((("paper", TABLE_5), ("counted", modelled)), shades, strict=True)
        ]
        bars(axes, list(NETS), rows)
        axes.set(ylabel="remote loads below BVLC-Caffe's, %", ylim=(0, 150), title="Four nodes of BW")


FIGURE = RemoteLoads()
