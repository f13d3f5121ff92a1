"""Pooling by oneDNN: Caffe's rounded-up sizes are padding at the end of each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.plan import Inlet, Plan, Planned, give, layout_of
from scaffe.engines.onednn.primitives import Memory, NoFastForm, Primitive
from scaffe.layers.layer import Blobs, register
from scaffe.layers.pooling import Pooling


class PoolingPlan(Plan):
    """The largest values' places go from the forward to the backward pass in oneDNN's workspace."""

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        super().__init__(layer, bottom, top)
        param = layer.param.pooling_param
        if len(top) > 1:
            raise NoFastForm("the second top, the places of the largest values")
        if param.pool == param.STOCHASTIC:
            raise NoFastForm("values drawn at random")
        engine, self.src, self.dst = self.engine, bottom[0].shape, top[0].shape
        axes = layer.method.rows, layer.method.columns
        kind = self._kind(axes)
        end = [(axis.out - 1) * axis.stride + axis.kernel - axis.size - axis.pad for axis in axes]
        pairs = [(axis.stride, axis.kernel, 0, axis.pad) for axis in axes]
        geometry = [lib.dims(pair) for pair in zip(*pairs, strict=True)] + [lib.dims(end)]
        x, y = layout_of(engine, bottom[0].values, self.src), engine.any(self.dst)
        given = engine.handle, lib.FORWARD_TRAINING, kind, x, y, *geometry, engine.attributes
        on_forward = engine.describe("pooling_forward", *given, shapes=self.src)
        y = on_forward.desc(lib.QUERY_DST, self.dst)
        given = engine.handle, kind, x, y, *geometry, on_forward, engine.attributes
        self.on_backward = engine.describe("pooling_backward", *given, shapes=self.src)
        self.x, self.y = Inlet(engine, x), Memory(engine, y)
        self.memories = {lib.ARG_DST: self.y}
        self.workspace = on_forward.desc(lib.QUERY_WORKSPACE)
        if self.workspace.nbytes:
            self.memories[lib.ARG_WORKSPACE] = Memory(engine, self.workspace)
        self.run_forward = Primitive(engine, on_forward, self.memories)
        self.run_backward: Primitive | None = None

    def _kind(self, axes: Sequence[Any]) -> int:
        """Return oneDNN's algorithm whose windows are Caffe's. Raise NoFastForm where there is none."""
        param = self.layer.param.pooling_param
        if param.pool == param.MAX:
            return lib.POOLING_MAX
        if all((axis.length == axis.kernel).all() for axis in axes):
            return lib.POOLING_AVG_INCLUDE_PADDING
        if not any(axis.pad for axis in axes):
            return lib.POOLING_AVG_EXCLUDE_PADDING
        raise NoFastForm("average windows that count the padding before the edge but not what lies beyond it")

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self.run_forward.bind(lib.ARG_SRC, self.x.fetch(bottom[0].values))
        self.run_forward.run()
        give(top[0].values, self.y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        if self.run_backward is None:
            self._prepare_backward()
        assert self.run_backward is not None
        self.run_backward.bind(lib.ARG_DIFF_DST, self.dy.fetch(top[0].diff_values))
        self.run_backward.run()
        give(bottom[0].diff_values, self.dx)

    def _prepare_backward(self) -> None:
        self.dy = Inlet(self.engine, self.y.desc)
        self.dx = Memory(self.engine, self.x.desc)
        memories = {lib.ARG_DIFF_SRC: self.dx}
        if self.workspace.nbytes:
            memories[lib.ARG_WORKSPACE] = self.memories[lib.ARG_WORKSPACE]
        self.run_backward = Primitive(self.engine, self.on_backward, memories)


class OnednnPooling(Planned, Pooling):
    """Pooling, largest or mean."""

    plan_type = PoolingPlan


register("Pooling", OnednnPooling, engine="onednn")
