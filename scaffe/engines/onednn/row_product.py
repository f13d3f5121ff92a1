"""Gradients of weights as products of matrices, straight into the parameters' plain diffs."""

from __future__ import annotations

import numpy as np

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive


class RowProduct:
    """The gradient dy^T x of weights (outputs x inputs), by oneDNN's inner product, summed in float32.

    x (rows x inputs), dy (rows x outputs) of the engine's data type, in C order. The library's own layout of the
    gradient would be faster, but then its reorder takes longer than the product. Raise NoFastForm where it is not fast.
    """

    def __init__(self, engine: Onednn, rows: int, inputs: int, outputs: int):
        low = engine.kind
        x, dy, w = engine.plain((rows, inputs), low), engine.plain((rows, outputs), low), (outputs, inputs)
        forward = engine.handle, lib.FORWARD_TRAINING, x, engine.any(w, low), None, dy, engine.attributes
        hint = engine.describe("inner_product_forward", *forward, shapes=w)
        given = engine.handle, x, engine.plain(w), None, dy, hint, engine.attributes
        described = engine.describe("inner_product_backward_weights", *given, shapes=w)
        self.x, self.dy, self.dw = (Memory(engine, desc, np.empty(0, np.float32)) for desc in (x, dy, engine.plain(w)))
        memories = {lib.ARG_SRC: self.x, lib.ARG_DIFF_DST: self.dy, lib.ARG_DIFF_WEIGHTS: self.dw}
        self.run = Primitive(engine, described, memories)

    def add(self, x: Memory, dy: Memory, blob: Blob) -> None:
        """Add dy^T x to the blob's diff; x and dy hold their rows in their buffers, whatever their shapes."""
        diff, zeros = blob.diff_values.to_add(blob.shape, np)
        target = diff if zeros else np.empty_like(diff)
        for memory, array in ((self.x, x.buffer), (self.dy, dy.buffer), (self.dw, target)):
            memory.point(array)
        self.run.run()
        if not zeros:
            diff += target
