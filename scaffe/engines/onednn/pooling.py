"""Pooling by oneDNN's pooling: Caffe rounds sizes up, which is padding at the end of each axis."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc, NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.layer_primitives import OnednnLayer
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.operands import Operand, assign, layout_of
from scaffe.layers.layer import Blobs, register
from scaffe.layers.pooling import Pooling

FEW_WINDOWS = 4  # that share an element: up to this, sums in float32 cost more than they gain
Passes = tuple[PrimitiveDesc, PrimitiveDesc]  # forward, backward


class PoolingPrimitives(OneToOne):
    """Maxima or means of windows; the workspace holds the indices of the maxima for the backward pass."""

    reads = ()

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        if len(top) > 1:
            raise NoFastForm("a second top, the indices of the maxima")
        super().__init__(layer, bottom, top)
        self.rounding = Operand(self.engine, self.x_desc, brief=True)

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        param, engine, method = self.layer.param.pooling_param, self.engine, self.layer.method
        if param.pool == param.STOCHASTIC:
            raise NoFastForm("stochastic pooling")
        axes = method.rows, method.columns
        algorithm = self._algorithm(axes)
        end = [(axis.out - 1) * axis.stride + axis.kernel - axis.size - axis.pad for axis in axes]
        pairs = [(axis.stride, axis.kernel, 0, axis.pad) for axis in axes]
        geometry = [lib.dims(pair) for pair in zip(*pairs, strict=True)] + [lib.dims(end)]
        y = engine.any(top.shape, self.kind)
        passes = self._fast(algorithm, layout_of(engine, bottom.values, bottom.shape, self.kind), y, geometry)
        x = passes[0].desc(lib.QUERY_SRC, bottom.shape)
        sharers = prod(min(axis.out, -(-axis.kernel // axis.stride)) for axis in axes)
        if self.kind != lib.F32 and sharers > FEW_WINDOWS:
            y = passes[0].desc(lib.QUERY_DST, top.shape)
            return self._with_float32_sums(algorithm, passes, (x, y), geometry)
        return passes

    def _fast(self, algorithm: int, x: Desc, y: Desc, geometry: Sequence[Any]) -> Passes:
        """Return both primitives in layout `x`, or in blocks of channels where oneDNN walks `x` number by number.

        A reorder is several times as fast as such a kernel, unless blocks were filled up with channels of zeros.
        """
        passes = self._passes(algorithm, x, y, geometry)
        for blocked in self.engine.blocked(x.shape, self.kind) if _is_slow(passes) else []:
            if blocked.nbytes == x.nbytes:
                with suppress(NoFastForm):
                    others = self._passes(algorithm, blocked, y, geometry)
                    if not _is_slow(others):
                        return others
        return passes

    def _passes(self, algorithm: int, x: Desc, y: Desc, geometry: Sequence[Any]) -> Passes:
        """Return both primitives for these layouts and data types."""
        engine = self.engine
        given = engine.handle, lib.FORWARD_TRAINING, algorithm, x, y, *geometry, engine.attributes
        forward = engine.describe("pooling_forward", *given, shapes=x.shape)
        given = engine.handle, algorithm, x, forward.desc(lib.QUERY_DST, y.shape), *geometry, forward, engine.attributes
        return forward, engine.describe("pooling_backward", *given, shapes=x.shape)

    def _with_float32_sums(
        self, algorithm: int, passes: Passes, descs: Sequence[Desc], geometry: Sequence[Any]
    ) -> Passes:
        """Return the passes with a backward one in float32, or as they are if the workspaces differ.

        In bfloat16 oneDNN rounds after each window that it adds to an element's gradient.
        """
        engine, forward = self.engine, passes[0]
        x, y = (engine.retyped(desc, lib.F32) for desc in descs)
        full_forward, full_backward = self._passes(algorithm, x, y, geometry)
        if full_forward.desc(lib.QUERY_WORKSPACE) != forward.desc(lib.QUERY_WORKSPACE):
            return passes
        self.back_kind = lib.F32
        return forward, full_backward

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        super().backward(top, propagate_down, bottom)
        if propagate_down[0] and self.back_kind != self.kind:
            assign(bottom[0].diff_values, self.rounding.fetch(bottom[0].diff_values))

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


def _is_slow(passes: Passes) -> bool:
    return any(one.implementation.startswith("simple") for one in passes)


class OnednnPooling(OnednnLayer, Pooling):
    """Pooling: MAX and AVE; the reference form for STOCHASTIC and for two tops."""

    primitives_type = PoolingPrimitives


register("Pooling", OnednnPooling, engine="onednn")
