"""Layers that compute value by value, by oneDNN where it has Caffe's very function, in the layout that they come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.fusion import Following
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.plan import Planned, layout_of
from scaffe.engines.onednn.primitives import NoFastForm, PrimitiveDesc
from scaffe.layers.absval import AbsVal
from scaffe.layers.bnll import BNLL
from scaffe.layers.clip import Clip
from scaffe.layers.elu import ELU
from scaffe.layers.exp import Exp
from scaffe.layers.layer import Layer, register
from scaffe.layers.log import Log
from scaffe.layers.power import Power
from scaffe.layers.relu import ReLU
from scaffe.layers.sigmoid import Sigmoid
from scaffe.layers.swish import Swish
from scaffe.layers.tanh import TanH


class Kind(NamedTuple):
    """A function that oneDNN has, with its two numbers, and what its derivative is a function of: x, or else y."""

    algorithm: int
    alpha: float = 0.0
    beta: float = 0.0
    of_y: bool = False
    back_alpha: float | None = None  # alpha of the derivative, where it is another


def _relu(layer: Any) -> Kind | None:
    """In place only y is left, whose sign is x's for any slope from 0 up."""
    if not layer.works_in_place:
        return Kind(lib.ELTWISE_RELU, layer.slope)
    return Kind(lib.ELTWISE_RELU_BY_DST, layer.slope, of_y=True) if layer.slope >= 0 else None


def _elu(layer: Any) -> Kind | None:
    """Caffe's gradient reads both x and y, of which one will do unless a layer behind has overwritten the other."""
    if layer.is_overwritten and not layer.works_in_place:
        return None
    of_y = layer.alpha >= 0
    return Kind(lib.ELTWISE_ELU_BY_DST if of_y else lib.ELTWISE_ELU, layer.alpha, of_y=of_y)


def _swish(layer: Any) -> Kind | None:
    """Caffe's gradient reads y, which a layer behind may overwrite, where oneDNN's reads x."""
    return None if layer.is_overwritten else Kind(lib.ELTWISE_SWISH, layer.beta)


def _exp(layer: Any) -> Kind | None:
    return Kind(lib.ELTWISE_EXP_BY_DST, of_y=True) if (layer.rate, layer.shift) == (1, 0) else None


def _log(layer: Any) -> Kind | None:
    return Kind(lib.ELTWISE_LOG) if (layer.scale, layer.shift, layer.per_e) == (1, 0, 1) else None


def _power(layer: Any) -> Kind | None:
    if layer.power == 1:
        return Kind(lib.ELTWISE_LINEAR, layer.scale, layer.shift)
    return Kind(lib.ELTWISE_SQUARE) if (layer.power, layer.scale, layer.shift) == (2, 1, 0) else None


def _clip(layer: Any) -> Kind:
    """Caffe's gradient passes at the lower bound, oneDNN's just above it."""
    below = float(np.nextafter(np.float32(layer.least), np.float32(-np.inf)))
    return Kind(lib.ELTWISE_CLIP, layer.least, layer.most, back_alpha=below)


KINDS: dict[type[Layer], Callable[[Any], Kind | None]] = {
    AbsVal: lambda layer: Kind(lib.ELTWISE_ABS),
    BNLL: lambda layer: Kind(lib.ELTWISE_SOFT_RELU, 1.0),
    Clip: _clip,
    ELU: _elu,
    Exp: _exp,
    Log: _log,
    Power: _power,
    ReLU: _relu,
    Sigmoid: lambda layer: Kind(lib.ELTWISE_LOGISTIC_BY_DST, of_y=True),
    Swish: _swish,
    TanH: lambda layer: Kind(lib.ELTWISE_TANH_BY_DST, of_y=True),
}


class ElementwisePlan(OneToOne):
    """A function of oneDNN's that is the layer's."""

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        engine, shape = self.engine, bottom.shape
        kind = self.layer.kind()
        if kind is None:
            raise NoFastForm("a function that oneDNN has only without such numbers")
        self.reads = (lib.ARG_DST if kind.of_y else lib.ARG_SRC,)
        desc = layout_of(engine, bottom.values, shape)
        given = engine.handle, lib.FORWARD_TRAINING, kind.algorithm, desc, desc, kind.alpha, kind.beta
        forward = engine.describe("eltwise_forward", *given, engine.attributes, shapes=shape)
        alpha = kind.alpha if kind.back_alpha is None else kind.back_alpha
        back = engine.handle, kind.algorithm, desc, desc, desc, alpha, kind.beta, forward
        return forward, engine.describe("eltwise_backward", *back, engine.attributes, shapes=shape)


class OnednnElementwise(Planned):
    """Mix into a reference layer that KINDS lists."""

    plan_type = ElementwisePlan

    def kind(self) -> Kind | None:
        """Return oneDNN's function that is this layer's, None where there is none."""
        return next(kind(self) for reference, kind in KINDS.items() if isinstance(self, reference))


class OnednnReLU(Following, OnednnElementwise, ReLU):
    """ReLU, leaky with negative_slope, perhaps computed by the layer before it."""


def rectifier_behind(layer: Layer) -> OnednnReLU | None:
    """Return the ReLU behind a layer that may be computed with it: in place, so that its gradient needs the top alone.

    That holds for any slope from 0 up.
    """
    relu = layer.follower
    return relu if isinstance(relu, OnednnReLU) and relu.works_in_place and relu.slope >= 0 else None


for reference in KINDS.keys() - {ReLU}:
    name = reference.__name__
    register(name, type(f"Onednn{name}", (OnednnElementwise, reference), {"__doc__": reference.__doc__}), "onednn")
register("ReLU", OnednnReLU, "onednn")
