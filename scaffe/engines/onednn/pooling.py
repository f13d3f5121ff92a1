"""Pooling by oneDNN's pooling: Caffe rounds sizes up, which is padding at the end of each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.layer_primitives import OnednnLayer
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.operands import layout_of
from scaffe.layers.layer import Blobs, register
from scaffe.layers.pooling import Pooling


class PoolingPrimitives(OneToOne):
    """Maxima or means of windows; the workspace holds the indices of the maxima for the backward pass."""

    reads = ()

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        if len(top) > 1:
            raise NoFastForm("a second top, the indices of the maxima")
        super().__init__(layer, bottom, top)

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        param, engine, method = self.layer.param.pooling_param, self.engine, self.layer.method
        if param.pool == param.STOCHASTIC:
            raise NoFastForm("stochastic pooling")
        axes = method.rows, method.columns
        algorithm = self._algorithm(axes)
        end = [(axis.out - 1) * axis.stride + axis.kernel - axis.size - axis.pad for axis in axes]
        pairs = [(axis.stride, axis.kernel, 0, axis.pad) for axis in axes]
        geometry = [lib.dims(pair) for pair in zip(*pairs, strict=True)] + [lib.dims(end)]
        x, y = layout_of(engine, bottom.values, bottom.shape, self.kind), engine.any(top.shape, self.kind)
        given = engine.handle, lib.FORWARD_TRAINING, algorithm, x, y, *geometry, engine.attributes
        forward = engine.describe("pooling_forward", *given, shapes=bottom.shape)
        y = forward.desc(lib.QUERY_DST, top.shape)
        given = engine.handle, algorithm, x, y, *geometry, forward, engine.attributes
        return forward, engine.describe("pooling_backward", *given, shapes=bottom.shape)

    def _algorithm(self, axes: Sequence[Any]) -> int:
        """Return oneDNN's algorithm with Caffe's windows. Raise NoFastForm where there is none."""
        param = self.layer.param.pooling_param
        if param.pool == param.MAX:
            return lib.POOLING_MAX
        if all((axis.length == axis.kernel).all() for axis in axes):
            return lib.POOLING_AVG_INCLUDE_PADDING
        if not any(axis.pad for axis in axes):
            return lib.POOLING_AVG_EXCLUDE_PADDING
        raise NoFastForm("average windows that include padding but exclude what lies beyond it")


class OnednnPooling(OnednnLayer, Pooling):
    """Pooling: MAX and AVE; the reference form for STOCHASTIC and for two tops."""

    primitives_type = PoolingPrimitives


register("Pooling", OnednnPooling, engine="onednn")
