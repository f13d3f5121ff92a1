"""Chains: BatchNorm with the Scale, the ReLU and the addition behind it, each pass of which is computed at once.

A convolution with the ReLU behind it is one too: it defers its top's values, for the ReLU to have them rectified.

BatchNorm computes statistics alone, and defers its top's values; so does a Scale behind it. The last layer of the chain
computes all: a ReLU in place, or an Eltwise that adds another blob, with a ReLU in place behind it. The array of a blob
in between is computed if it is requested. Gradients go the same way: the ReLU defers the bottom's gradient, Scale the
next one once it has the gradients of its parameters, and BatchNorm computes the gradient of the chain's bottom.

Values are deferred in training only, where no other blob may use the memory of what they are computed from.
"""

from __future__ import annotations

from typing import Any

from scaffe.context import TRAIN
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import BlobValues, ChannelsLast, kind, reading
from scaffe.layers.layer import Layer


class Deferred:
    """Values or a gradient to be computed; called with the place, the plain array or its home, it computes them."""

    def __call__(self, place: Any) -> None:
        self.compute(place.array if isinstance(place, ChannelsLast) else place)

    def compute(self, target: Any) -> None:
        """Write the values or the gradient into `target`."""
        raise NotImplementedError


class DeferredTop(Deferred):
    """Values that the next layer may rectify as they are computed."""

    def compute(self, target: Any, rectified: bool = False) -> None:
        raise NotImplementedError


class Normalised(DeferredTop):
    """The top's values of a BatchNorm, or of the Scale behind it."""

    def __init__(self, norm: Any, scale: Any = None):
        self.norm, self.scale = norm, scale

    def compute(self, target: Any, rectified: bool = False) -> None:
        self.add(None, target, rectified)

    def add(self, other: Any, target: Any, rectified: bool) -> None:
        """Write the values into `target`, plus `other` if it is given."""
        self.norm.normalise(self.scale, other, target, rectified)


class Added(DeferredTop):
    """The top's values of an Eltwise that adds `other` to normalised ones."""

    def __init__(self, normalised: Normalised, other: Any):
        self.normalised, self.other = normalised, other

    def compute(self, target: Any, rectified: bool = False) -> None:
        self.normalised.add(self.other, target, rectified)


class Unrectified(Deferred):
    """The gradient of the bottom of a ReLU in place: what is at the place where the top, of that layer, is above 0."""

    def __init__(self, relu: Layer, top: BlobValues):
        self.relu, self.top = relu, top

    def compute(self, target: Any) -> None:
        y = reading(self.top)
        engine_of(self.relu).over("relu", f"relu_back{kind(y)}", y.size, y, target, target, 0.0, each=16 // y.itemsize)


class Unscaled(Deferred):
    """The gradient of the bottom of a Scale behind a BatchNorm, from that of its top; or of the ReLU's behind it."""

    def __init__(self, norm: Any, rectified: bool):
        self.norm, self.rectified = norm, rectified

    def compute(self, target: Any) -> None:
        self.norm.back(target, target, self.rectified, bare=True)


def raw(part: BlobValues) -> Any:
    """Return the array where values lie, whatever is deferred there."""
    home = part.values.home
    return home.array if isinstance(home, ChannelsLast) and part.values.form is home else part.values.array


def deferred(part: BlobValues, kind: type[Deferred]) -> Any:
    """Return what computes a blob's values or gradient if it is of this kind, else None."""
    waiting = part.values.deferred
    return waiting if isinstance(waiting, kind) else None


def values_to_defer(part: BlobValues, layer: Layer) -> bool:
    """Return whether the values of a layer's top may be computed later: in training, once their memory is there."""
    return layer.context.phase == TRAIN and not part.values.shared and raw(part) is not None
