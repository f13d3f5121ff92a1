"""BatchNormalization, LRN, Softmax, and sums and means over axes."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.onnx.grown_net import GrownNet
from scaffe.onnx.into.shape_ops import axis_of
from scaffe.onnx.readers import Op, Unreadable, reads

OPERATIONS = {"ReduceMean": "MEAN", "ReduceSum": "SUM", "ReduceL1": "ASUM", "ReduceSumSquare": "SUMSQ"}
SOFTMAX_OF_AN_AXIS = 13  # the opset; before, all axes from the given one on are one


@reads("BatchNormalization")
def _batch_normalization(layers: GrownNet, op: Op) -> str:
    if op.get("training_mode", 0) or any(op.used[1:]):
        raise Unreadable("it normalises by the batch; export the model for inference")
    if not op.get("spatial", 1):
        raise Unreadable("its spatial is 0, where a layer has a mean of each channel")
    scale, bias, mean, variance = (op.needed(index) for index in range(1, 5))
    x, eps = op.blob(layers), op.get("epsilon", 1e-5)
    normalised = layers.add("BatchNorm", [x], [mean, variance, np.ones(1)], batch_norm_param=dict(eps=eps))
    return layers.add("Scale", [normalised], [scale, bias], scale_param=dict(bias_term=True))


@reads("LRN")
def _lrn(layers: GrownNet, op: Op) -> str:
    x, size = op.blob(layers), op.get("size")
    if size % 2 == 0 or len(layers.shape(x)) != 4:
        raise Unreadable(f"its size is {size} and its input {layers.shape(x)}; a layer has an odd size and 4 axes")
    param = dict(local_size=size, alpha=op.get("alpha", 1e-4), beta=op.get("beta", 0.75), k=op.get("bias", 1.0))
    return layers.add("LRN", [x], lrn_param=param)


@reads("Softmax", "LogSoftmax")
def _softmax(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    shape, is_new = layers.shape(x), op.opset >= SOFTMAX_OF_AN_AXIS
    axis = axis_of(layers, x, op.get("axis", -1 if is_new else 1))
    flat = x if is_new else layers.reshape(x, [*shape[:axis], prod(shape[axis:])])
    y = layers.reshape(layers.add("Softmax", [flat], softmax_param=dict(axis=axis)), shape)
    return y if op.kind == "Softmax" else layers.add("Log", [y])


@reads(*OPERATIONS)
def _reduce(layers: GrownNet, op: Op) -> str:
    """Read a Reduction over the last axes, which others are moved to."""
    x = op.blob(layers)
    shape = layers.shape(x)
    given = op.numbers(1, "axes")
    if not given and op.get("noop_with_empty_axes", 0):
        raise Unreadable("it reduces no axis")
    axes = sorted(axis % len(shape) for axis in given) if given else list(range(len(shape)))
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    wanted = [1 if axis in axes else n for axis, n in enumerate(shape)]
    wanted = wanted if op.get("keepdims", 1) else [shape[axis] for axis in kept]
    if op.kind == "ReduceMean" and len(shape) == 4 and axes == [2, 3]:
        y = layers.add("Pooling", [x], pooling_param=dict(pool="AVE", global_pooling=True))
        return layers.reshape(y, wanted)
    moved = layers.permute(x, [*kept, *axes])
    y = layers.add("Reduction", [moved], reduction_param=dict(operation=OPERATIONS[op.kind], axis=len(kept)))
    return layers.reshape(y, wanted)
