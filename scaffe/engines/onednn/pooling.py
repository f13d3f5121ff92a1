"""Pooling by oneDNN: Caffe's rounded-up sizes are padding at the end of each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.plan import Planned, layout_of
from scaffe.engines.onednn.primitives import NoFastForm, PrimitiveDesc
from scaffe.layers.layer import Blobs, register
from scaffe.layers.pooling import Pooling


class PoolingPlan(OneToOne):
    """The largest values' places go from the forward to the backward pass in oneDNN's workspace."""

    reads = ()

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        if len(top) > 1:
            raise NoFastForm("the second top, the places of the largest values")
        super().__init__(layer, bottom, top)

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        param, engine, method = self.layer.param.pooling_param, self.engine, self.layer.method
        if param.pool == param.STOCHASTIC:
            raise NoFastForm("values drawn at random")
        axes = method.rows, method.columns
        kind = self._kind(axes)
        end = [(axis.out - 1) * axis.stride + axis.kernel - axis.size - axis.pad for axis in axes]
        pairs = [(axis.stride, axis.kernel, 0, axis.pad) for axis in axes]
        geometry = [lib.dims(pair) for pair in zip(*pairs, strict=True)] + [lib.dims(end)]
        x, y = layout_of(engine, bottom.values, bottom.shape), engine.any(top.shape)
        given = engine.handle, lib.FORWARD_TRAINING, kind, x, y, *geometry, engine.attributes
        forward = engine.describe("pooling_forward", *given, shapes=bottom.shape)
        y = forward.desc(lib.QUERY_DST, top.shape)
        given = engine.handle, kind, x, y, *geometry, forward, engine.attributes
        return forward, engine.describe("pooling_backward", *given, shapes=bottom.shape)

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


class OnednnPooling(Planned, Pooling):
    """Pooling, largest or mean."""

    plan_type = PoolingPlan


register("Pooling", OnednnPooling, engine="onednn")
