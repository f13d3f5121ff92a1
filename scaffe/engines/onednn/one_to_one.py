"""OneToOne: the primitives of layers with one bottom and one top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import Blob, Values
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import PrimitiveDesc
from scaffe.engines.onednn.layer_primitives import LayerPrimitives
from scaffe.engines.onednn.operands import Operand, assign
from scaffe.engines.onednn.pooled_memory import pooled
from scaffe.engines.onednn.primitives import Memory, Primitive
from scaffe.layers.layer import Blobs


class OneToOne(LayerPrimitives):
    """A forward primitive, a backward primitive, and the workspace that the first writes for the second.

    Subclasses describe both, and list in `reads` the arguments of the second besides the top's gradient. A layer in
    place overwrites its values, unless the backward pass reads the bottom's.
    """

    reads: Sequence[int] = (lib.ARG_SRC,)  # or lib.ARG_DST, or neither

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        self.in_place = bottom[0] is top[0]
        self.back_kind = self.kind
        on_forward, self.on_backward = self.describe(bottom[0], top[0])
        self.x_desc = on_forward.desc(lib.QUERY_SRC, bottom[0].shape)
        self.y_desc = on_forward.desc(lib.QUERY_DST, top[0].shape)
        self.x, self.y_again = Operand(self.engine, self.x_desc), Operand(self.engine, self.y_desc)
        self.y: Memory | None = None
        self.dx: Memory | None = None
        self.kept: Memory | None = None  # a copy of the bottom's values, where the top's replace them
        workspace = on_forward.desc(lib.QUERY_WORKSPACE)
        self.workspace = {lib.ARG_WORKSPACE: Memory(self.engine, workspace)} if workspace.nbytes else {}
        self.run_forward = Primitive(self.engine, on_forward, self.workspace)
        self.run_backward: Primitive | None = None

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        """Return the forward and the backward primitive. Raise NoFastForm where one is not fast."""
        raise NotImplementedError

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = self._places(bottom[0].values)
        self.run_forward.run({lib.ARG_SRC: x, lib.ARG_DST: y})
        assign(top[0].values, y)

    def _places(self, values: Values) -> tuple[Memory, Memory]:
        """Return the memories to read and to write."""
        x = self.x.fetch(values)
        if self.in_place and lib.ARG_SRC not in self.reads:
            return x, x
        if self.y is None:
            self.y = Memory(self.engine, self.y_desc)
        if not self.in_place:
            return x, self.y
        if x.plain or x is self.y:  # a plain array stays the blob's, as users may hold it
            self.kept = self.kept or Memory(self.engine, self.x_desc)
            self.kept.buffer.reshape(-1)[...] = x.buffer.reshape(-1)
            return self.kept, x
        return x, self.y

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        run = self.run_backward or self._prepare_backward()
        dy = self.dy.fetch(top[0].diff_values)
        dx = self._place_of_diff(top[0].diff_values, dy)
        given = {lib.ARG_DIFF_DST: dy, lib.ARG_DIFF_SRC: dx}
        if lib.ARG_SRC in self.reads:
            x = self.run_forward.memories[lib.ARG_SRC] if self.in_place else self.x.recall(bottom[0].values)
            given[lib.ARG_SRC] = x
        if lib.ARG_DST in self.reads:
            given[lib.ARG_DST] = self.y_again.recall(top[0].values)
        run.run(given)
        assign(bottom[0].diff_values, dx)
        self.dy.release()

    def _prepare_backward(self) -> Primitive:
        self.dy = Operand(self.engine, self.engine.retyped(self.y_desc, self.back_kind), brief=True)
        self.run_backward = Primitive(self.engine, self.on_backward, self.workspace)
        return self.run_backward

    def _place_of_diff(self, values: Values, dy: Memory) -> Memory:
        """Return the memory for the bottom's gradient: in place the top's, unless another blob holds that too."""
        if self.in_place and not values.lent:
            return dy
        if self.dx is None:
            self.dx = pooled(self.engine, self.engine.retyped(self.x_desc, self.back_kind))
        return self.dx.acquire()
