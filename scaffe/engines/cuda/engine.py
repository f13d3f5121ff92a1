"""Cuda: the engine that computes layers by kernels on a GPU, and records what they launch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, cast

from scaffe.blob import Blob
from scaffe.compute import DEFAULT, Compute
from scaffe.devices.gpu import Gpu
from scaffe.engine import NO_GRAPHS, Group, LayerView, Loss, NetView
from scaffe.engines.cuda.graphs import Graphs
from scaffe.engines.cuda.launcher import Launcher
from scaffe.engines.cuda.report import LateLoss, Report
from scaffe.engines.cuda.typed_blobs import TypedBlobs
from scaffe.errors import EngineError
from scaffe.layers.layer import Layer


class Cuda(Launcher):
    """Kernels for the heavy layers, groups of layers in recordings, and losses that nobody waits for."""

    name = "cuda"

    def __init__(self, gpu: Gpu, compute: Compute = DEFAULT):
        super().__init__(gpu, compute)
        self.times_kernels = not compute.deterministic
        self.graphs: Graphs | None = None

    @property
    def machine(self) -> str:
        return "" if self.cudnn is None else f"{self.gpu.model}, {self.cudnn.version}"

    def adopt(self, net: NetView) -> None:
        super().adopt(net)
        insists = self.compute.graphs == "on"
        if insists and not self.memory.plans:
            raise EngineError(NO_GRAPHS)
        if self.memory.plans and self.compute.graphs != "off":
            self.graphs = Graphs(self, net, insists)

    def typed_blobs(self, net: NetView) -> TypedBlobs:
        return TypedBlobs(self, net)

    def groups(self, net: NetView, starts: Iterable[int] = ()) -> list[Group]:
        return super().groups(net, starts) if self.graphs is None else self.graphs.groups(starts)

    def forward(self, net: NetView, group: Group) -> None:
        if self.graphs is None or len(group) == 1:
            super().forward(net, group)
        else:
            self.graphs.forward(group)

    def backward(self, net: NetView, group: Group) -> None:
        if self.graphs is None or len(group) == 1:
            super().backward(net, group)
        else:
            self.graphs.backward(group)

    def loss(self, net: NetView) -> Loss:
        return LateLoss(self.report, net)

    def raise_faults(self) -> None:
        self.report.complain()

    def sound_labels(self, layer: LayerView, labels: Blob, good: Any, classes: int, ignore: int | None) -> Any:
        self.report.check(layer, labels.array, labels.num, classes, ignore)
        return self.xp.where(good, labels.array, 0)

    @cached_property
    def report(self) -> Report:
        """The loss and the wrong labels of the net's passes, read later than they are computed."""
        return Report(self)

    def __str__(self) -> str:
        return f"cuda, on {self.gpu}, in {self.compute.numbers}"


def engine_of(layer: Layer) -> Cuda:
    """Return the engine of a layer that computes by kernels."""
    return cast(Cuda, layer.context.engine)
