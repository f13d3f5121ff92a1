"""LayerKernels: what the engine's kernels do for each layer: number formats, layouts, reorders and their times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from scaffe.blob import Blob, Values
from scaffe.devices.kernel_run import REORDER, KernelRun, Tensor
from scaffe.net.net import Net

OTHER = "temporary values"  # the name of a tensor that is no blob's


@dataclass
class LayerKernels:
    """The kernels of a layer, as an engine in the host's memory reports them.

    - `numbers`: the number format of the factors, "float32" for a layer that numpy computes.
    - `tops`: each top by name, with its format.
    - `seconds`: wall time of the kernels that compute, in an iteration, by operation; `reorders`: of those that change
      a layout or a number format, by pass, tensor and formats.
    """

    numbers: str = ""
    tops: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    reorders: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def watch(net: Net, iterations: int) -> list[LayerKernels]:
    """Run the net `iterations` times forward and backward; return each layer's kernels, their times as means."""
    watched = [_Watched(net, i) for i in range(len(net.layers))]
    try:
        with np.errstate(all="ignore"):
            for _ in range(iterations):
                _iterate(net, watched)
    finally:
        net.engine.watcher = None
    for layer in watched:
        layer.divide(iterations)
    return [layer.found for layer in watched]


def _iterate(net: Net, watched: list[_Watched]) -> None:
    net.clear_param_diffs()
    for i, layer in enumerate(watched):
        net.engine.watcher = layer.see_forward
        net.forward_layer(i)
        layer.note_tops()
    net.context.batch_number += 1
    for i, layer in reversed([*enumerate(watched)]):
        net.engine.watcher = layer.see_backward
        net.backward_layer(i)


class _Watched:
    """A layer of a net while its kernels are watched."""

    def __init__(self, net: Net, i: int):
        self.net, self.i, self.found = net, i, LayerKernels()
        self._bottoms = [*zip(net.nodes[i].bottoms, net.bottoms[i], strict=True)]
        self._tops = [*zip(net.nodes[i].tops, net.tops[i], strict=True)]
        self._parameters = [(f"{net.layers[i].name}[{k}]", blob) for k, blob in enumerate(net.layers[i].blobs)]

    def see_forward(self, run: KernelRun) -> None:
        """Count a kernel of the forward pass."""
        if run.operation != REORDER and not self.found.numbers:
            self.found.numbers = run.source.numbers
        self._count(run, "forward")

    def see_backward(self, run: KernelRun) -> None:
        """Count a kernel of the backward pass."""
        self._count(run, "backward")

    def _count(self, run: KernelRun, step: str) -> None:
        if run.operation == REORDER:
            name = self._name(run.source) or self._name(run.target) or OTHER
            self.found.reorders[f"{step}, {name} {run.source.format} to {run.target.format}"] += run.seconds
        else:
            self.found.seconds[run.operation] += run.seconds

    def _name(self, tensor: Tensor) -> str:
        """Return the name of the blob whose values or gradient it is, "" for none."""
        for name, blob in (*self._bottoms, *self._parameters, *self._tops):
            for values, suffix in ((blob.values, ""), (blob.diff_values, " diff")):
                memory = self.net.engine.memory_of(values).items()
                if any(start <= tensor.address < start + nbytes for start, nbytes in memory):
                    return name + suffix
        return ""

    def note_tops(self) -> None:
        """Note the formats of the tops, which the forward pass has just computed."""
        tops, bottoms = ([self._format(blob) for _, blob in blobs] for blobs in (self._tops, self._bottoms))
        self.found.tops = [f"{name} {form}" for (name, _), form in zip(self._tops, tops, strict=True)]
        if not self.found.numbers:  # it was computed by another layer's kernel, or in numpy
            self.found.numbers = next(iter(tops + bottoms), "float32").partition(" ")[0]

    def _format(self, blob: Blob) -> str:
        return self.net.engine.format_of(blob.values)

    def divide(self, iterations: int) -> None:
        """Turn the sums of the times into means."""
        for times in (self.found.seconds, self.found.reorders):
            for key in times:
                times[key] /= iterations


def layer_lines(name: str, kernels: LayerKernels) -> Iterator[str]:
    """Iterate over a layer's lines: its number format with the tops' formats, and each reorder with its time."""
    yield f"{name:>10}\ttype: {', '.join([kernels.numbers, *kernels.tops])}."
    for what, seconds in kernels.reorders.items():
        yield f"{name:>10}\treorder: {what}: {1e3 * seconds:.6g} ms."


def sums(kernels: Sequence[LayerKernels]) -> tuple[float, float]:
    """Return the seconds of all kernels that compute, and of all reorders."""
    return sum(sum(k.seconds.values()) for k in kernels), sum(sum(k.reorders.values()) for k in kernels)


def blob_bytes(net: Net) -> int:
    """Return the bytes of the memory in which the values and gradients of the net's blobs lie now."""
    found: dict[int, int] = {}
    for values in _all_values([blob for blobs in (*net.bottoms, *net.tops) for blob in blobs]):
        for start, nbytes in net.engine.memory_of(values).items():
            found[start] = max(nbytes, found.get(start, 0))
    return sum(found.values())


def _all_values(blobs: list[Blob]) -> Iterator[Values]:
    for blob in blobs:
        yield from (blob.values, blob.diff_values)
