"""BatchNorm by kernels, with the Scale, the addition and the ReLU behind it in one pass each way: see chain.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.blob import Blob
from scaffe.engines.cuda.chain import Normalised, Unrectified, Unscaled, deferred, raw, values_to_defer
from scaffe.engines.cuda.channels import Channels
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import arrays, data, diff, reading, writing
from scaffe.engines.cuda.relu import fusable_relu
from scaffe.engines.cuda.scale import CudaScale
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers.batch_norm import BatchNorm
from scaffe.layers.layer import Blobs, register

NONE = np.uint64(0)  # a null pointer, for an array that a kernel does not get


class CudaBatchNorm(TypedLayer, BatchNorm):
    """BatchNorm (N x C x ...); the reference form where a channel has too many elements for the kernels."""

    capturable = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        super().setup(bottom, top)
        self.normalised_top = Normalised(self)
        self.gradients = {rectified: Unscaled(self, rectified) for rectified in (False, True)}

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        self.parts = Channels(*self.view)

    def typed_blobs(self, bottom: Blobs, top: Blobs) -> list[Blob]:
        return [*bottom, *top] if len(bottom[0].shape) > 1 and self.parts.fits_last else []

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not self.parts.fit:
            return super().forward(bottom, top)
        is_last, (x, y) = arrays([data(bottom[0])], [data(top[0])])
        self.parts = Channels(*self.view, last=16 // x.itemsize if is_last else 0)
        self.source = x
        defers, in_place = self._defers(top), top[0] is bottom[0]
        kept = in_place and not (defers and self._ends_apart)
        self._measure(x, self.keep(x) if kept else None)
        if defers:
            top[0].values.defer(self.normalised_top)
        else:
            self.normalise(None, None, y, False)

    def _defers(self, top: Blobs) -> bool:
        """Return whether the layer behind computes the top's values."""
        scale = self.follower
        behind = isinstance(scale, CudaScale) and scale.works_in_place and scale.by_channel(top[0].shape)
        return values_to_defer(data(top[0]), self) and (behind or fusable_relu(self) is not None)

    @property
    def _ends_apart(self) -> bool:
        """Whether an Eltwise computes the chain into another blob."""
        return isinstance(self.follower, CudaScale) and self.follower.ends_apart

    def keep(self, x: Any) -> Any:
        """Return the memory that keeps x for the backward pass, where the top overwrites it."""
        self.source = self.buffer("kept", x.shape, x.dtype)
        return self.source

    def _measure(self, x: Any, kept: Any) -> None:
        """Compute mean and 1 / deviation (C), of the batch or by the running sums; copy x into `kept` if given."""
        engine, sums, channels = engine_of(self), [blob.array for blob in self.blobs], self.parts.channels
        self.mean, self.inverse = (self.buffer(name, (channels,), np.float32) for name in ("mean", "inverse"))
        if self.use_sums:
            arrays = *sums, self.mean, self.inverse
            engine.over("batch_norm", "known_statistics", channels, *arrays, float(self.eps))
            if kept is not None:
                kept[...] = x
            return
        chunks, count = self.parts.sums(self), self.parts.elements
        self.parts.launch(engine, "norm_chunks", x, NONE if kept is None else kept, *chunks)
        numbers = count, self.parts.chunks, self.parts.size
        factors = float(self.eps), float(self.fraction), count / max(1, count - 1)
        arrays = *chunks, self.mean, self.inverse, *sums
        engine.launch("batch_norm", "norm_statistics", (channels,), *arrays, *numbers, *factors)

    def normalise(self, scale: Any, other: Any, target: Any, rectified: bool) -> None:
        """Write the normalised values into `target`, scaled by a Scale, plus `other`, rectified, where asked for."""
        engine, x = engine_of(self), self.source
        if engine.gpu.place(target) == engine.gpu.place(x):
            self.keep(x)[...] = x
        factors = scale.parameters() if scale else (NONE, NONE)
        arrays = self.source, self.mean, self.inverse, *factors, NONE if other is None else other, target
        self.parts.launch(engine, "normalise", *arrays, numbers=(int(rectified),))

    def add_up(self, dy: Any, rectified: bool, scale: Any = None) -> None:
        """Compute the terms that `back` reads, and add the gradients of a Scale's parameters."""
        engine, sums = engine_of(self), self.parts.sums(self)
        factors = scale.parameters() if scale else (NONE, NONE)
        diffs = scale.parameter_diffs() if scale else (NONE, NONE, 0, 0)
        self.terms = self.buffer("terms", (5, self.parts.channels), np.float32)
        chunks = 0 if self.use_sums and not scale else self.parts.chunks
        if chunks:
            arrays = self.source, dy, self.mean, self.inverse, *factors, *sums
            self.parts.launch(engine, "norm_back_chunks", *arrays, numbers=(int(rectified),))
        arrays = *sums, self.inverse, *factors, self.terms, *diffs
        numbers = self.parts.channels, chunks, 0.0 if self.use_sums else 1 / self.parts.elements
        engine.launch("batch_norm", "norm_totals", (self.parts.channels,), *arrays, *numbers)

    def back(self, dy: Any, dx: Any, rectified: bool, bare: bool = False) -> None:
        """Compute the gradient of x from that of the chain's top; with `bare`, that of the normalised values."""
        arrays = self.source, dy, self.mean, self.terms, dx
        self.parts.launch(engine_of(self), "normalise_back", *arrays, numbers=(int(rectified), int(bare)))

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0] or not self.parts.fit:
            return super().backward(top, propagate_down, bottom)
        gradient = diff(top[0])
        scaled, unrectified = deferred(gradient, Unscaled), deferred(gradient, Unrectified)
        rectified = scaled.rectified if scaled else unrectified is not None
        dy = raw(gradient) if scaled or unrectified else reading(gradient)
        if not scaled:
            self.add_up(dy, rectified)
        self.back(dy, dy if top[0] is bottom[0] else writing(diff(bottom[0])), rectified)
        if top[0] is bottom[0]:
            bottom[0].diff_values.overwritten()


register("BatchNorm", CudaBatchNorm, engine="cuda")
