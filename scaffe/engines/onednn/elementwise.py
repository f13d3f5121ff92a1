"""Elementwise layers by oneDNN's eltwise, where it has exactly Caffe's function, in the layout of the bottom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from scaffe.blob import Blob
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import NoFastForm, PrimitiveDesc
from scaffe.engines.onednn.fusion import FusableLayer
from scaffe.engines.onednn.layer_primitives import OnednnLayer
from scaffe.engines.onednn.one_to_one import OneToOne
from scaffe.engines.onednn.operands import layout_of
from scaffe.layers.absval import AbsVal
from scaffe.layers.bnll import BNLL
from scaffe.layers.clip import Clip
from scaffe.layers.elu import ELU
from scaffe.layers.exp import Exp
from scaffe.layers.hard_swish import HardSwish
from scaffe.layers.layer import Layer, register
from scaffe.layers.log import Log
from scaffe.layers.mish import Mish
from scaffe.layers.power import Power
from scaffe.layers.relu import ReLU
from scaffe.layers.relu6 import MOST, ReLU6
from scaffe.layers.sigmoid import Sigmoid
from scaffe.layers.swish import Swish
from scaffe.layers.tanh import TanH


class EltwiseFunction(NamedTuple):
    """An eltwise algorithm of oneDNN, its parameters, and the argument of its derivative: y where `of_y`, else x."""

    algorithm: int
    alpha: float = 0.0
    beta: float = 0.0
    of_y: bool = False
    back_alpha: float | None = None  # alpha of the derivative, where it differs


def _relu(layer: Any) -> EltwiseFunction | None:
    """In place only y is left to the backward pass; its sign is that of x where the slope is 0 or more."""
    if not layer.works_in_place:
        return EltwiseFunction(lib.ELTWISE_RELU, layer.slope)
    return EltwiseFunction(lib.ELTWISE_RELU_BY_DST, layer.slope, of_y=True) if layer.slope >= 0 else None


def _elu(layer: Any) -> EltwiseFunction | None:
    """Caffe's gradient reads x and y, oneDNN's only one of them, which differs where a layer behind overwrites y."""
    if layer.is_overwritten and not layer.works_in_place:
        return None
    of_y = layer.alpha >= 0
    return EltwiseFunction(lib.ELTWISE_ELU_BY_DST if of_y else lib.ELTWISE_ELU, layer.alpha, of_y=of_y)


def _swish(layer: Any) -> EltwiseFunction | None:
    """Caffe's gradient reads y, which a layer behind may overwrite; oneDNN's reads x."""
    return None if layer.is_overwritten else EltwiseFunction(lib.ELTWISE_SWISH, layer.beta)


def _exp(layer: Any) -> EltwiseFunction | None:
    return EltwiseFunction(lib.ELTWISE_EXP_BY_DST, of_y=True) if (layer.rate, layer.shift) == (1, 0) else None


def _log(layer: Any) -> EltwiseFunction | None:
    return EltwiseFunction(lib.ELTWISE_LOG) if (layer.scale, layer.shift, layer.per_e) == (1, 0, 1) else None


def _power(layer: Any) -> EltwiseFunction | None:
    if layer.power == 1:
        return EltwiseFunction(lib.ELTWISE_LINEAR, layer.scale, layer.shift)
    return EltwiseFunction(lib.ELTWISE_SQUARE) if (layer.power, layer.scale, layer.shift) == (2, 1, 0) else None


def _clip(layer: Any) -> EltwiseFunction:
    """Caffe's gradient is passed at the lower bound itself, oneDNN's only above it."""
    below = float(np.nextafter(np.float32(layer.least), np.float32(-np.inf)))
    return EltwiseFunction(lib.ELTWISE_CLIP, layer.least, layer.most, back_alpha=below)


def _relu6(layer: Any) -> EltwiseFunction | None:
    """In place only y is left, which is between the bounds where x is; oneDNN has no slope below."""
    if layer.slope:
        return None
    algorithm = lib.ELTWISE_CLIP_V2_BY_DST if layer.works_in_place else lib.ELTWISE_CLIP_V2
    return EltwiseFunction(algorithm, 0, MOST, of_y=layer.works_in_place)


FUNCTIONS: dict[type[Layer], Callable[[Any], EltwiseFunction | None]] = {
    AbsVal: lambda layer: EltwiseFunction(lib.ELTWISE_ABS),
    BNLL: lambda layer: EltwiseFunction(lib.ELTWISE_SOFT_RELU, 1.0),
    Clip: _clip,
    ELU: _elu,
    Exp: _exp,
    HardSwish: lambda layer: EltwiseFunction(lib.ELTWISE_HARDSWISH, 1 / 6, 0.5),
    Log: _log,
    Mish: lambda layer: EltwiseFunction(lib.ELTWISE_MISH),
    Power: _power,
    ReLU: _relu,
    ReLU6: _relu6,
    Sigmoid: lambda layer: EltwiseFunction(lib.ELTWISE_LOGISTIC_BY_DST, of_y=True),
    Swish: _swish,
    TanH: lambda layer: EltwiseFunction(lib.ELTWISE_TANH_BY_DST, of_y=True),
}


class ElementwisePrimitives(OneToOne):
    """The eltwise primitives of the layer's function."""

    def describe(self, bottom: Blob, top: Blob) -> tuple[PrimitiveDesc, PrimitiveDesc]:
        engine, shape = self.engine, bottom.shape
        function = self.layer.function()
        if function is None:
            raise NoFastForm("oneDNN does not have the function with these parameters")
        self.reads = (lib.ARG_DST if function.of_y else lib.ARG_SRC,)
        desc = layout_of(engine, bottom.values, shape, self.kind)
        given = engine.handle, lib.FORWARD_TRAINING, function.algorithm, desc, desc, function.alpha, function.beta
        forward = engine.describe("eltwise_forward", *given, engine.attributes, shapes=shape)
        alpha = function.alpha if function.back_alpha is None else function.back_alpha
        back = engine.handle, function.algorithm, desc, desc, desc, alpha, function.beta, forward
        return forward, engine.describe("eltwise_backward", *back, engine.attributes, shapes=shape)


class OnednnElementwise(OnednnLayer):
    """Mix into a reference layer that FUNCTIONS lists."""

    primitives_type = ElementwisePrimitives

    def function(self) -> EltwiseFunction | None:
        """Return oneDNN's function that equals this layer's, None where there is none."""
        return next(function(self) for reference, function in FUNCTIONS.items() if isinstance(self, reference))


class OnednnReLU(FusableLayer, OnednnElementwise, ReLU):
    """ReLU, leaky with negative_slope; the layer before it may compute it."""


def fusable_relu(layer: Layer) -> OnednnReLU | None:
    """Return the ReLU that follows a layer and can be fused with it, else None.

    It must work in place with a slope of 0 or more: its gradient then needs only its top.
    """
    relu = layer.follower
    return relu if isinstance(relu, OnednnReLU) and relu.works_in_place and relu.slope >= 0 else None


for reference in FUNCTIONS.keys() - {ReLU}:
    name = reference.__name__
    register(name, type(f"Onednn{name}", (OnednnElementwise, reference), {"__doc__": reference.__doc__}), "onednn")
register("ReLU", OnednnReLU, "onednn")
