"""Convolution, Deconvolution and Im2col."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.onnx.graph import Graph
from scaffe.onnx.writers import Blobs, Names, writes


@writes("Convolution", "Deconvolution", "DepthwiseConvolution", "ConvolutionDepthwise")
def _convolution(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    kind = "ConvTranspose" if layer.type == "Deconvolution" else "Conv"
    weights = g.constant(_with_space(layer.blobs[0].data), "weights")
    bias = [g.constant(layer.blobs[1].data, "bias")] if layer.bias_term else []
    pairs = zip(names, bottom, top, strict=True)
    return [_slide(g, kind, layer, x, below, above, layer.group, weights, *bias) for x, below, above in pairs]


@writes("Im2col")
def _im2col(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    """Write a convolution of each channel whose filters each pick an element of the window."""
    axis = layer.canonical_axis(layer.param.convolution_param.axis, bottom[0])
    channels, count = bottom[0].shape[axis], prod(layer.kernel)
    picks = np.tile(np.eye(count, dtype=np.float32), (channels, 1)).reshape(channels * count, 1, *layer.kernel)
    return [_slide(g, "Conv", layer, names[0], bottom[0], top[0], channels, g.constant(_with_space(picks), "picks"))]


def _with_space(weights: np.ndarray) -> np.ndarray:
    """Return weights with an axis of space where they have none: an op needs one."""
    return weights if weights.ndim > 2 else weights[:, :, None]


def _slide(g: Graph, kind: str, layer: Any, x: str, bottom: Any, top: Any, group: int, *parameters: str) -> str:
    """Add a Conv or ConvTranspose, with reshapes where the channels are not on axis 1, or there is no space."""
    axis = layer.canonical_axis(layer.param.convolution_param.axis, bottom)
    space = layer.kernel or (1,)
    is_plain = axis == 1 and layer.kernel
    if not is_plain:
        x = g.reshape(x, [prod(bottom.shape[:axis]), bottom.shape[axis], *(bottom.shape[axis + 1 :] or (1,))])
    attributes = dict(
        kernel_shape=list(space), strides=list(layer.stride or (1,)), dilations=list(layer.dilation or (1,)),
        pads=list(layer.pad or (0,)) * 2, group=group,
    )  # fmt: skip
    y = g.op(kind, x, *parameters, **attributes)
    return y if is_plain else g.reshape(y, top.shape)
