"""Scale by kernels: one launch forward; backward one for values and partial sums, and one that adds the sums up.

Behind a BatchNorm it is computed with that layer, or with those behind it: see chain.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.blob import Blob, Shape
from scaffe.engines.cuda.chain import Normalised, Unrectified, deferred, raw, values_to_defer
from scaffe.engines.cuda.channels import Channels
from scaffe.engines.cuda.eltwise import CudaEltwise
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import arrays, data, diff, reading
from scaffe.engines.cuda.relu import fusable_relu
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers.layer import Blobs, register
from scaffe.layers.scale import Scale

NONE = np.uint64(0)  # a null pointer, for an array that a kernel does not get


class CudaScale(TypedLayer, Scale):
    """Scale by a learned factor per channel; the reference form for a second bottom."""

    capturable = True
    _scaled: Normalised | None = None  # the top's values, where a layer behind computes them
    _chain: Normalised | None = None  # the bottom's values in this pass, where this layer or one behind computed them

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        self.parts = Channels(*self.view)
        self.has_kernel = len(bottom) == 1 and self.parts.fit

    def by_channel(self, shape: Shape) -> bool:
        """Return whether a bottom of this shape (N x C x ...) is scaled by one learned factor per channel."""
        axis = self.param.scale_param.axis
        return len(self.param.bottom) == 1 and axis in (1, 1 - len(shape)) and self.blobs[0].shape == shape[1:2]

    @property
    def ends_apart(self) -> bool:
        """Whether an Eltwise behind adds another blob to the top's values as it computes them."""
        joined, place = self.joined or (None, 0)
        return isinstance(joined, CudaEltwise) and joined.adds and place == 1

    def typed_blobs(self, bottom: Blobs, top: Blobs) -> list[Blob]:
        fits = self.has_kernel and self.parts.fits_last and self.by_channel(bottom[0].shape)
        return [*bottom, *top] if fits else []

    def parameters(self) -> tuple[Any, Any]:
        """Return factor and bias (C), a null pointer for none."""
        return self.blobs[0].array, self.bias.array if self.bias else NONE

    def parameter_diffs(self) -> list[Any]:
        """Return the gradients of factor and bias, a null pointer for one not wanted; and whether to add to each."""
        blobs = self.blobs[0] if self.param_propagate_down[0] else None, self.param_propagate_down[-1] and self.bias
        found = [blob.diff_values.to_add(blob.shape, self.xp) if blob else (NONE, True) for blob in blobs]
        return [array for array, _ in found] + [int(not zeros) for _, zeros in found]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self._chain = deferred(data(bottom[0]), Normalised) if self.has_kernel else None
        if self._chain:
            self._pass_on(self._chain, top)
        elif not self.has_kernel:
            super().forward(bottom, top)
        else:
            in_place = top[0] is bottom[0]
            is_last, (x, y) = arrays([data(bottom[0])], [data(top[0])])
            self.parts = Channels(*self.view, last=16 // x.itemsize if is_last else 0)
            self.input = self.buffer("kept input", x.shape, x.dtype) if in_place else x
            kept = self.input if in_place else NONE
            self.parts.launch(engine_of(self), "scale", x, *self.parameters(), kept, y)

    def _pass_on(self, chain: Normalised, top: Blobs) -> None:
        """Compute the values of a BatchNorm and this layer, or defer them for a layer behind."""
        if self._scaled is None or self._scaled.norm is not chain.norm:
            self._scaled = Normalised(chain.norm, self)
        if values_to_defer(data(top[0]), self) and (self.ends_apart or fusable_relu(self)):
            top[0].values.defer(self._scaled)
        else:
            self._scaled.compute(raw(data(top[0])))
            top[0].values.overwritten()

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self._chain:
            return self._backward_in_chain(self._chain.norm, top, bottom)
        if not self.has_kernel:
            return super().backward(top, propagate_down, bottom)
        if not propagate_down[0] and not self.parts.last:  # Caffe then leaves dy x in the bottom's diff
            self.input = self.input.reshape(self.view)
            return super().backward(top, propagate_down, bottom)
        engine, chunks = engine_of(self), self.parts.sums(self)
        if propagate_down[0]:
            _, (dy, dx) = arrays([diff(top[0])], [diff(bottom[0])])
        else:  # no memory is planned for the bottom's gradient
            dy = reading(diff(top[0]))
            dx = self.buffer("unread", dy.shape, dy.dtype)
        self.parts.launch(engine, "scale_back", self.input, dy, self.blobs[0].array, dx, *chunks)
        arguments = *chunks, self.parts.chunks, *self.parameter_diffs()
        engine.launch("batch_norm", "scale_gradients", (self.parts.channels,), *arguments)

    def _backward_in_chain(self, norm: Any, top: Blobs, bottom: Blobs) -> None:
        """Add the gradients of the parameters; BatchNorm computes its bottom's with this layer's."""
        gradient = diff(top[0])
        unrectified = deferred(gradient, Unrectified) is not None
        norm.add_up(raw(gradient) if unrectified else reading(gradient), unrectified, self)
        bottom[0].diff_values.defer(norm.gradients[unrectified])


register("Scale", CudaScale, engine="cuda")
