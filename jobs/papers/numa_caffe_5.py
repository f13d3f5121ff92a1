"""NUMA-Caffe, figure 5, tables 4 and 5: loads from other nodes, by nodes, by function, by system.

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

from collections.abc import Iterable
from typing import Any

from drawing import bars, curves
from figure import MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, holds, within
from numa_nodes import BATCHES, BOXES, CONVOLUTION, INNER, NETS, Part, counts, of_box, of_net, parts, weights

BOX = BOXES["BW"]
SYSTEMS = {"BVLC": OTHER, "Intel": MODEL, "NUMA": OURS}
TABLE_4 = {  # Intel-Caffe, CIFAR-10: % of the remote loads
    "weight_cpu_gemm": 36.1,
    "forward_cpu_gemm": 11.4,
    "im2col_cpu": 5.7,
    "backward_cpu_gemm": 4.0,
    "pooling, backward": 3.3,
    "pooling, forward": 2.0,
    "ReLU, backward": 3.7,
}
TABLE_5 = {  # fall of remote accesses against BVLC, %
    "Intel": {"CIFAR-10": 90.18, "AlexNet": 89.37, "GoogLeNet": 83.73},
    "NUMA": {"CIFAR-10": 96.05, "AlexNet": 92.09, "GoogLeNet": 91.47},
}
UPDATE_PART = 71  # % of NUMA-Caffe's remote accesses; batches have the rest


def by_function(layer: Part, threads: int) -> dict[str, float]:
    """Return the bytes that Intel-Caffe's threads load for an image, by table 4's functions and "other"."""
    columns = layer.unfolded(BOX.cache, threads) / 2
    if layer.type == CONVOLUTION:
        gradients = layer.top if layer.ways > 1 else 0.0
        image = 0.0 if layer.columns else layer.bottom
        return {
            "im2col_cpu": 2 * layer.bottom if layer.columns else 0.0,
            "forward_cpu_gemm": columns / layer.ways + image,
            "weight_cpu_gemm": gradients + columns / layer.ways + image,  # the bottom's gradient finds it in the cache
            "backward_cpu_gemm": columns / layer.ways * (layer.ways > 2),
        }
    names = {"Pooling": "pooling", "ReLU": "ReLU"}
    back = (layer.bottom + layer.top) * (layer.ways > 1)
    if layer.type == "Pooling":
        back = layer.top + layer.places  # its gradient, and which bottom was the greatest
    if layer.type not in names:
        return {"other": layer.bottom + back}
    name = names[layer.type]
    return {f"{name}, forward": layer.bottom, f"{name}, backward": back}


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
    return far * (inner + batch * sum(functions(net).values()))


def functions(net: str) -> dict[str, float]:
    """Return the bytes that Intel-Caffe's threads load for an image, by function, but inner products'."""
    found: dict[str, float] = {}
    for layer in parts(net):
        if layer.type != INNER:
            for name, loaded in by_function(layer, BOX.cores).items():
                found[name] = found.get(name, 0.0) + loaded
    return found


class RemoteLoads(Figure):
    """What crosses the links."""

    id, rank = "numa-caffe-5", 17
    title = "Loads from other NUMA nodes: with more nodes, by function, and how much NUMA-Caffe saves"
    source = "NUMA-Caffe, figure 5, tables 4 and 5, sections 3.2, 3.3 and 5.2"
    paper = "Intel-Caffe: 51.5 % of convolutions' products; 84 to 90 % below BVLC, NUMA-Caffe 91 to 96 %"
    inputs = (
        *(Input(name, found, "% of remote loads", STATED, "table 4") for name, found in TABLE_4.items()),
        Input("gradients and weights", UPDATE_PART, "% of NUMA-Caffe's remote loads", STATED, "section 5.2: over 71 %"),
        *(one for one in of_box("BW", BOX) if one.name == "BW: cache"),
        *map(of_net, NETS),
    )
    unexplained = (
        "Counters count lines of all loads that miss, also of MKL's packed copies and of waiting threads; this counts "
        "each byte once for each use. Table 4's rows add up to 66.2 %; where the rest is, the text does not say.",
        "forward_cpu_gemm has 11.4 %: its columns have just been written by the same thread, and fit the cache. If all "
        "columns came from the first node, the products had 86 % in place of the paper's 51.5 %.",
        "CIFAR-10's blobs (61 MB with gradients) fit the caches of four nodes (140 MB): a thread may find its own "
        "results there, so that pooling and ReLU load less, as in table 4. This count has no such hits.",
        "The table has 3.3 and 2.0 % for pooling, the text 5.4 %.",
        "Intel-Caffe's remote loads are a tenth to a sixth of BVLC's in table 5. Here AlexNet's and GoogLeNet's are "
        "most of all columns, which don't fit the cache and which the main thread has touched first (section 3.3); "
        "CIFAR-10's are 17 % of BVLC's, which fewer loads of pooling and ReLU would lower.",
    )

    def model(self, measured: Data) -> Data:
        """Return remote bytes by net, system and nodes, parts by function, falls against BVLC, the update's part."""
        nodes = counts(BOX)
        loads = {net: {system: [remote(system, net, n) for n in nodes] for system in SYSTEMS} for net in NETS}
        found = functions("CIFAR-10")
        found["other"] = found.get("other", 0.0) + of_inner("CIFAR-10") / BATCHES["CIFAR-10"]
        update = 2 * weights("CIFAR-10") * (BOX.nodes - 1)
        return {
            "loads": loads,
            "functions": {name: 100 * found[name] / sum(found.values()) for name in TABLE_4},
            "falls": {
                system: {net: 100 * (1 - loads[net][system][-1] / loads[net]["BVLC"][-1]) for net in NETS}
                for system in TABLE_5
            },
            "update": 100 * update / remote("NUMA", "CIFAR-10", BOX.nodes),
        }

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check figure 5's order, tables 4 and 5, and the part of the update."""
        for net in ("AlexNet", "CIFAR-10"):
            bvlc, intel = (modelled["loads"][net][system] for system in ("BVLC", "Intel"))
            more = f"figure 5, {net}: remote loads rise with nodes, as (N - 1) / N does"
            yield Check(more, float(rises(bvlc) and rises(intel)), 1, 1, fitted=True)
            yield holds(f"figure 5, {net}: BVLC's rise more than Intel's", bvlc[-1] - bvlc[1] > intel[-1] - intel[1])
        for name, value in TABLE_4.items():
            yield within(f"table 4: {name}, % of remote loads", modelled["functions"][name], value, 0.2)
        products = sum(found for name, found in modelled["functions"].items() if name.endswith("gemm"))
        yield within("table 4: products of convolutions, % of remote loads", products, 51.5, 0.2)
        for system, falls in modelled["falls"].items():
            for net, found in falls.items():
                what, value = f"table 5, {net}: {system}, remote loads", TABLE_5[system][net]
                if system == "NUMA":
                    yield Check(f"{what}, fall against BVLC's, % (paper {value})", found, 90)
                else:
                    yield within(f"{what}, what is left of BVLC's, %", 100 - found, 100 - value, 0.2)
        yield within("CIFAR-10, NUMA: gradients and weights, % of remote loads", modelled["update"], UPDATE_PART, 0.2)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the falls and the products' part."""
        products = sum(found for name, found in modelled["functions"].items() if name.endswith("gemm"))
        falls = "; ".join(
            f"{system} {', '.join(f'{found:.0f} %' for found in each.values())} below BVLC"
            for system, each in modelled["falls"].items()
        )
        return "", f"{falls} (CIFAR-10, AlexNet, GoogLeNet); products of convolutions {products:.0f} %"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw remote bytes against nodes as figure 5 does, and table 4's parts."""
        figure.set_size_inches(9, 4.2)
        *panels, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.3))
        for axes, net in zip(panels, ("AlexNet", "CIFAR-10"), strict=True):
            loads = {name: [n / 1e9 for n in found] for name, found in modelled["loads"][net].items()}
            curves(axes, counts(BOX), loads, SYSTEMS.values())
            axes.set(xlabel="NUMA nodes", ylabel="GB of an iteration from other nodes", title=f"{net}, BW (counted)")
            axes.set_xticks(counts(BOX))
        bars(right, [("paper", TABLE_4.values(), PAPER), ("counted", modelled["functions"].values(), MODEL)])
        right.set_xticks(range(len(TABLE_4)), list(TABLE_4), rotation=55, ha="right", fontsize=8)
        right.set(ylabel="% of remote loads", title="Intel-Caffe, CIFAR-10")


def rises(values: list[float]) -> bool:
    """Return whether each value is more than the one before."""
    return all(one < other for one, other in zip(values, values[1:], strict=False))


FIGURE = RemoteLoads()
