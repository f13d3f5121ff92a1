"""LayerPrimitives: what oneDNN prepares for a layer once per shape; OnednnLayer: the layers that compute by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.engines.onednn.descriptors import NoFastForm
from scaffe.engines.onednn.primitives import engine_of
from scaffe.layers.layer import Blobs, Layer
from scaffe.monitor.log import log


class LayerPrimitives:
    """The primitives and memories of a layer for the shapes of its blobs.

    The constructor raises NoFastForm where oneDNN has no fast primitive for the forward or the backward pass. `kind` is
    the data type of the first top, in which layers without products compute.
    """

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        self.layer = layer
        self.engine = engine_of(layer)
        self.kind = self.engine.kind_of(top[0])

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        """Compute the tops' values."""
        raise NotImplementedError

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute the bottoms' diff values and add to the parameters' diffs."""
        raise NotImplementedError


class OnednnLayer(Layer):
    """Mix into a reference layer: compute by `primitives_type`, or by the reference where that raises NoFastForm.

    The primitives are made in the first forward pass, by the thread that runs it: the bottoms' layouts are known then.
    """

    primitives_type: type[LayerPrimitives]
    takes_bf16 = True
    _primitives: LayerPrimitives | None = None
    _prepared = False
    _shapes: list[tuple[int, ...]] | None = None

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        shapes = [blob.shape for blob in bottom]
        if shapes != self._shapes:
            self._shapes = shapes
            self.replan()

    def replan(self) -> None:
        self._primitives, self._prepared = None, False

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not self._prepared:
            self._prepare(bottom, top)
        if self._primitives is None:
            super().forward(bottom, top)
        else:
            self.context.engine.enter()
            self._primitives.forward(bottom, top)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not self._prepared:  # the layer before has computed the forward pass
            self._prepare(bottom, top)
        if self._primitives is None:
            super().backward(top, propagate_down, bottom)
        else:
            self._primitives.backward(top, propagate_down, bottom)

    def _prepare(self, bottom: Blobs, top: Blobs) -> None:
        self._prepared = True
        self.context.engine.enter()
        try:
            self._primitives = self.primitives_type(self, bottom, top)
        except NoFastForm as reason:
            if reason.args:
                log.info("layer '%s' (%s) computes in numpy: %s", self.name, self.type, reason)
