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
    writes_slices = False  # whether its top, and that one's gradient, may be slices of arrays with more channels
    joins_channels = False  # whether its top holds the channels of its bottoms side by side

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

    def slices(self, typed: set[int]) -> dict[int, tuple[Blob, int]]:
        """Return the blobs that are slices of a Concat's top, by id: that top, and which of its channels is the first.

        Each is written by one layer that can write there, perhaps with a ReLU in place that is computed with it, and
        read by the Concat alone. Slices begin where 16 bytes do.
        """
        found: dict[int, tuple[Blob, int]] = {}
        itemsize = 2 if self.dtype == BF16 else 4
        for i, layer in enumerate(self.net.layers):
            if not (isinstance(layer, TypedLayer) and layer.joins_channels) or layer.is_overwritten:
                continue
            (whole,), first = self.net.tops[i], 0
            for blob in self.net.bottoms[i]:
                channels = blob.shape[1]
                aligned = not any(n * itemsize % 16 for n in (first, channels, whole.shape[1]))
                if id(blob) in typed and aligned and self._is_written_by_one(blob, layer):
                    found[id(blob)] = whole, first
                first += channels
        return found

    def _is_written_by_one(self, blob: Blob, reader: Any) -> bool:
        """Return whether a blob is written by one layer that can write slices, and read by `reader` alone."""
        layers = zip(self.net.layers, self.net.bottoms, self.net.tops, strict=True)
        users = [layer for layer, bottom, top in layers if any(blob is one for one in (*bottom, *top))]
        maker: Any = users[0]
        between = [maker.follower] if getattr(maker, "rectifies", False) else []
        return getattr(maker, "writes_slices", False) and users == [maker, *between, reader]

    def move_in(self, blob: Blob, values: Values, memory: Any, shared: bool) -> None:
        """Make `memory` (bytes) the home of a typed blob's values or gradient."""
        array = memory.view(self.dtype).reshape(last_shape(blob.shape))
        values.move_in(ChannelsLast(self.engine, array), shared)

    def lie_in(self, whole: Values, first: int, blob: Blob, values: Values) -> None:
        """Make the channels of `whole` from `first` on the home of a blob's values or gradient."""
        assert isinstance(whole.home, ChannelsLast)
        part = whole.home.array[..., first : first + blob.shape[1]]
        values.move_in(ChannelsLast(self.engine, part), whole.shared)
