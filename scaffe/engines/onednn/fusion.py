"""Layers that one primitive computes together: what stands between them, and how each gives its part.

The first layer of such a chain computes the last one's values and leaves an `Ahead` as its own. Each layer that follows
finds it in its bottom and hands on what it holds. Whoever looks at a blob in between sees the values that belong there,
computed when he looks, from what the first layer's bottom and the parameters hold by then. If he does that before the
next layer has run, that one computes by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from scaffe.blob import Form, Values
from scaffe.engines.onednn.plan import give
from scaffe.engines.onednn.primitives import Memory
from scaffe.layers.layer import Blobs, Layer


class Maker(Protocol):
    """The plan that computes a chain."""

    def backward_of(self, layer: Layer, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Do a following layer's part of the backward pass."""


class Ahead(Form):
    """Values that nobody has computed: `show` writes them. `then` is what the next layer is to give, once.

    `maker` computes the chain's backward pass too; without one each layer computes its own.
    """

    def __init__(self, maker: Maker | None, show: Callable[[Any], None]):
        self.maker, self._show = maker, show
        self.then: Memory | Ahead | None = None

    def store(self, array: Any) -> None:
        self._show(array)

    def holding(self, then: Memory | Ahead) -> Ahead:
        """Return this with what the next layer is to give."""
        self.then = then
        return self


def hand_on(source: Values, target: Values) -> Ahead | None:
    """Let `target` be what an Ahead in `source` holds, and return that; None where there is none to hand on."""
    ahead = source.form
    if not isinstance(ahead, Ahead) or ahead.then is None:
        return None
    then, ahead.then = ahead.then, None
    if isinstance(then, Memory):
        give(target, then)
    else:
        target.take_form(then)
    return ahead


class Following(Layer):
    """Mix into a layer that may have been computed ahead."""

    _ahead: Ahead | None = None

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self._ahead = hand_on(bottom[0].values, top[0].values)
        if self._ahead is None:
            super().forward(bottom, top)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self._ahead is None or self._ahead.maker is None:
            super().backward(top, propagate_down, bottom)
        else:
            self._ahead.maker.backward_of(self, top, propagate_down, bottom)
