"""Cupy: the engine that computes every layer by its reference form on a GPU, with CuPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.blob import Blob
from scaffe.compute import DEFAULT, Compute
from scaffe.devices.ahead import Ahead, Transforming
from scaffe.devices.gpu import Gpu
from scaffe.engine import LayerView, NetView
from scaffe.engines.cuda.memory import BlobMemory, Typed
from scaffe.engines.reference import Reference


class Cupy(Reference):
    """The reference forms on one GPU.

    A net's blobs lie in one allocation, and data layers' batches are copied to the GPU ahead of use.
    """

    in_host_memory = False
    memory: BlobMemory

    def __init__(self, gpu: Gpu, compute: Compute = DEFAULT):
        super().__init__()
        self.gpu, self.compute, self.xp, self.device = gpu, compute, gpu.xp, gpu.device

    def allocate(self, count: int) -> Any:
        return self.xp.zeros(count, np.float32)

    def adopt(self, net: NetView) -> None:
        self.memory = BlobMemory(self.xp, net, self.typed_blobs(net))

    def typed_blobs(self, net: NetView) -> Typed | None:
        """Return the net's blobs that have a form of the engine's own, None where none can."""
        return None

    def begin_pass(self) -> None:
        self.memory.prepare()

    def reshaped(self, layer: LayerView) -> None:
        if not layer.reshapes_always:
            self.memory.stale = True

    def moved(self) -> None:
        self.memory.version += 1

    def view(self, blob: Blob, source: Blob) -> None:
        blob.values = source.values  # copies on the host included

    def delivery(self, transforming: Transforming | None = None) -> Ahead:
        """Return what copies a data layer's batches to the GPU; `transforming` makes what transforms images there."""
        return Ahead(self.gpu, transforming)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all scratch memory."""
        return sum(memory.nbytes for memory in self._scratch_memory.values() if memory is not None)

    def enter(self) -> None:
        self.gpu.use()

    def wait(self) -> None:
        self.gpu.wait()

    def explain(self, error: BaseException) -> str:
        return self.gpu.explain(error)

    def room(self, rows: int) -> str:
        each, room = self.memory.needs(rows, self.gpu.free, self.scratch_bytes)
        batch = max(0, min(rows - 1, room // each))
        fits = f"a batch of about {batch} a rank would fit instead of {rows}" if batch else "not even one fits"
        return f"; at {each} bytes a sample, {fits}"

    def __str__(self) -> str:
        return f"reference, by CuPy on {self.gpu}"
