"""Coordinates of one top of a NetSpec in another, and the Crop that aligns two: pycaffe's caffe.coord_map.

Fully convolutional nets crop what they upsample to the size of their input:

from scaffe.spec.coord_map import crop

n.upscore = L.Deconvolution(n.score, num_output=21, kernel_size=64, stride=32)
n.crop = crop(n.upscore, n.data)

A map (axis, scale, shift) leads from a coordinate x of a bottom to scale * x + shift of a top. Scale and shift are
numbers, or arrays with an element for each spatial axis. `axis` is the last axis before the spatial ones, None for a
map that holds on all axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from scaffe.errors import NetError
from scaffe.spec.netspec import Function, Top, layer_function

Number: TypeAlias = "float | np.ndarray"
Map: TypeAlias = "tuple[int | None, Number, Number]"

IDENTITY: Map = (None, 1, 0)
SPATIAL_AXIS = 1  # the channels, the last axis before the spatial ones where a layer has no field for it
WINDOWED = {
    **dict.fromkeys(("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution"), "convolution_param"),
    "Im2col": "convolution_param",
    "Pooling": "pooling_param",
}
PASS_THROUGH_LAYERS = (
    "AbsVal", "BatchNorm", "Bias", "BN", "BNLL", "Clip", "CReLU", "Dropout", "Eltwise", "ELU", "Exp", "HardSwish",
    "Log", "LRN", "Mish", "MVN", "Normalize", "Power", "PReLU", "ReLU", "ReLU6", "Scale", "ShuffleChannel", "Sigmoid",
    "Split", "Swish", "TanH", "Threshold",
)  # fmt: skip


class UndefinedMapException(NetError):
    """A layer type that has no map of coordinates."""


class AxisMismatchException(NetError):
    """Maps over different axes, which can't be composed."""


class UnconnectedError(NetError):
    """Tops that no path of layers with maps connects."""


class CropError(NetError, AssertionError):
    """Tops that no crop aligns; also an AssertionError, as in pycaffe."""


def coord_map(fn: Function) -> Map:
    """Return the map of a layer, from its bottoms to its tops. Raise UndefinedMapException if its type has none."""
    layer = fn.layer_parameter()
    if fn.type_name in PASS_THROUGH_LAYERS:
        return IDENTITY
    if fn.type_name == "Crop":
        offset = np.array(list(layer.crop_param.offset) or [0])
        return layer.crop_param.axis - 1, 1, -offset
    if fn.type_name in WINDOWED and not layer.pooling_param.global_pooling:
        return inverse(_placed(fn, getattr(layer, WINDOWED[fn.type_name])))
    if fn.type_name == "Deconvolution":
        return _placed(fn, layer.convolution_param)
    raise UndefinedMapException(f"{fn.type_name} has no map of coordinates from its bottoms to its tops")


def _placed(fn: Function, p: Any) -> Map:
    """Return the map from a window's number to the coordinate of its centre, with the fields of `p`."""
    kernel, stride, pad = (
        _sizes(p, what, field, default)
        for what, field, default in (("kernel", "kernel_size", 0), ("stride", "stride", 1), ("pad", "pad", 0))
    )
    if not kernel.all():
        raise UndefinedMapException(f"{fn.type_name} has no kernel_size")
    dilation = np.array(list(getattr(p, "dilation", [])) or [1])
    return getattr(p, "axis", SPATIAL_AXIS), stride, dilation * (kernel - 1) / 2 - pad


def _sizes(p: Any, what: str, field: str, default: int) -> np.ndarray:
    """Return a window's field, of one size for all axes or of one for each."""
    if p.HasField(f"{what}_h") or p.HasField(f"{what}_w"):
        return np.array([getattr(p, f"{what}_h"), getattr(p, f"{what}_w")])
    value = getattr(p, field)
    return np.array([value] if isinstance(value, int) else list(value) or [default])


def compose(base_map: Map, next_map: Map) -> Map:
    """Return the map of `next_map` followed by `base_map`. Raise AxisMismatchException if their axes differ."""
    (base_axis, base_scale, base_shift), (axis, scale, shift) = base_map, next_map
    if base_axis is not None and axis is not None and base_axis != axis:
        raise AxisMismatchException(f"a map behind axis {axis} is followed by one behind axis {base_axis}")
    return axis if base_axis is None else base_axis, base_scale * scale, base_scale * shift + base_shift


def inverse(coord_map: Map) -> Map:
    """Return the map in the other direction."""
    axis, scale, shift = coord_map
    return axis, 1 / scale, -shift / scale


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """Return the map from the coordinates of `top_from` to those of `top_to`, by a top that both are computed from.

    Raise UnconnectedError if there is none, or a layer between has no map.
    """
    from_maps = dict(_ancestors(top_from))
    for top, to_map in _ancestors(top_to):
        if top in from_maps:
            return compose(to_map, inverse(from_maps[top]))
    names = f"a top of {top_from.fn.type_name} to one of {top_to.fn.type_name}"
    raise UnconnectedError(f"no map of coordinates from {names}: no layers that have maps connect them")


def _ancestors(wanted: Top) -> Iterator[tuple[Top, Map]]:
    """Iterate over a top and those it is computed from, the nearest first, each with the map from it to `wanted`.

    Where several paths lead to a top, their maps are the same in a net that can be built.
    """
    maps, pending = {wanted: IDENTITY}, [wanted]
    for top in pending:
        yield top, maps[top]
        for bottom in _mapped_bottoms(top.fn):
            if bottom not in maps:
                maps[bottom] = compose(maps[top], coord_map(top.fn))
                pending.append(bottom)


def _mapped_bottoms(fn: Function) -> Sequence[Top]:
    """Return the bottoms that a layer's map is of: all, but for Crop's second, whose size alone counts."""
    try:
        coord_map(fn)
    except UndefinedMapException:
        return []
    return fn.inputs[:1] if fn.type_name == "Crop" else fn.inputs


def crop(top_from: Top, top_to: Top) -> Top:
    """Return the top of a Crop of `top_from` to the place and size of `top_to`.

    Raise CropError if their scales differ, or the offset is negative or no whole number.
    """
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    offset = -np.array(shift, ndmin=1)
    if not np.allclose(scale, 1):
        raise CropError(f"can't crop: a step in the top to crop is {scale} steps in the other; expected 1")
    if not np.allclose(offset, np.round(offset)) or np.round(offset).min() < 0:
        raise CropError(f"can't crop at offset {offset}: expected whole numbers from 0 on")
    first = (SPATIAL_AXIS if axis is None else axis) + 1
    top: Top = layer_function("Crop")(top_from, top_to, crop_param=dict(axis=first, offset=_whole(offset)))
    return top


def _whole(offset: np.ndarray) -> list[int]:
    return [int(number) for number in np.round(offset)]
