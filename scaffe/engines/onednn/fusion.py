"""Layers that one primitive computes together: what the blobs between them hold, and each layer's share of the work.

The first layer of such a chain computes the last one's values, and gives its own top a `DeferredValues`. Each layer
behind finds it in its bottom, and assigns the result that it holds to its own top. A blob in between is computed only
when its array is requested, from the values that the first layer's bottom and the parameters have at that time. After
such a request the next layer computes its own values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from scaffe.blob import Form, Values
from scaffe.engines.onednn.operands import assign
from scaffe.engines.onednn.primitives import Memory
from scaffe.layers.layer import Blobs, Layer


class FusedPrimitives(Protocol):
    """The primitives that compute a chain of layers."""

    def backward_of(self, layer: Layer, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Run the backward pass of one of the layers behind the first."""


class DeferredValues(Form):
    """Values of a blob inside a chain, not computed: `write(array)` computes them on request.

    `result` is what the next layer assigns to its top, once. `fused` computes the chain's backward pass; where it is
    None, each layer computes its own. `again` computes the result anew, where `write` overwrites it.
    """

    def __init__(
        self,
        fused: FusedPrimitives | None,
        write: Callable[[Any], None],
        again: Callable[[], None] | None = None,
    ):
        self.fused, self._write, self._again = fused, write, again
        self.result: Memory | DeferredValues | None = None

    def store(self, array: Any) -> None:
        self._write(array)

    def look(self, array: Any) -> None:
        self._write(array)
        if self._again is not None:
            self._again()

    def with_result(self, result: Memory | DeferredValues) -> DeferredValues:
        """Set what the next layer assigns to its top; return this."""
        self.result = result
        return self


def move_result(source: Values, target: Values) -> DeferredValues | None:
    """Assign the result that a DeferredValues in `source` holds to `target`, and return that form.

    Return None where `source` holds no such form, or one whose result has been moved.
    """
    deferred = source.form
    if not isinstance(deferred, DeferredValues) or deferred.result is None:
        return None
    result, deferred.result = deferred.result, None
    if isinstance(result, Memory):
        assign(target, result)
    else:
        target.take_form(result)
    return deferred


class FusableLayer(Layer):
    """Mix into a layer that the layer before it may compute."""

    _deferred: DeferredValues | None = None

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self._deferred = move_result(bottom[0].values, top[0].values)
        if self._deferred is None:
            super().forward(bottom, top)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self._deferred is None or self._deferred.fused is None:
            super().backward(top, propagate_down, bottom)
        else:
            self._deferred.fused.backward_of(self, top, propagate_down, bottom)
