"""Typed blobs: which blobs of a net lie channels last, in the type of the products. Decided here alone.

A blob lies so if every layer that writes or reads it has kernels for that, and it is no output of the net. A layer that
converts nothing itself wants all its blobs in one form: if one is plain, all are. Plain is float32 in C order.

In float32 all blobs are plain, as cuDNN's kernels without tensor cores read channels first. Without cuDNN they are too.
"""

from __future__ import annotations

from typing import Any

from scaffe.blob import Blob, Values
from scaffe.engine import NetView
from scaffe.engines.cuda.forms import TYPES, ChannelsLast, last_shape
from scaffe.engines.cuda.launcher import Launcher
from scaffe.engines.cuda.layouts import BF16
from scaffe.layers.layer import Blobs, Layer


class TypedLayer(Layer):
    """Mix into a layer whose kernels read and write blobs that lie channels last.

    With `one_form` it reads and writes blobs that all lie so, or that are all plain; without, any mixture.
    """

    one_form = True

    def typed_blobs(self, bottom: Blobs, top: Blobs) -> list[Blob]:
        """Return those of its bottoms and tops that may lie channels last."""
        return [*bottom, *top]


class TypedBlobs:
    """The typed blobs of a net, as its shapes are now."""

    def __init__(self, engine: Launcher, net: NetView):
        self.engine, self.net = engine, net
        self.dtype = TYPES.get(engine.compute.numbers) if engine.cudnn is not None else None
        self._axes = 2 if self.dtype == BF16 else 3  # float32 blobs (N x C) lie one way only

    def choose(self) -> set[int]:
        """Return the typed blobs, by id."""
        if self.dtype is None:
            return set()
        layers = [*zip(self.net.layers, self.net.bottoms, self.net.tops, strict=True)]
        able = {id(blob) for *_, top in layers for blob in top if len(blob.shape) >= self._axes and blob.count}
        for layer, bottom, top in layers:
            may = {id(blob) for blob in layer.typed_blobs(bottom, top)} if isinstance(layer, TypedLayer) else set()
            able -= {id(blob) for blob in (*bottom, *top)} - may
        able -= {id(self.net.blobs[name]) for name in self.net.outputs}
        uniform = [{id(b) for b in (*bottom, *top)} for one, bottom, top in layers if getattr(one, "one_form", False)]
        while mixed := [blobs for blobs in uniform if blobs & able and blobs - able]:
            able -= set().union(*mixed)
        return able

    def move_in(self, blob: Blob, values: Values, memory: Any, shared: bool) -> None:
        """Make `memory` (bytes) the home of a typed blob's values or gradient."""
        array = memory.view(self.dtype).reshape(last_shape(blob.shape))
        values.move_in(ChannelsLast(self.engine, array), shared)
