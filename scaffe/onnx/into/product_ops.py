"""Gemm and MatMul, by a constant."""

from __future__ import annotations

import numpy as np

from scaffe.onnx.grown_net import GrownNet
from scaffe.onnx.into.arithmetic_ops import add
from scaffe.onnx.readers import Op, Unreadable, reads


@reads("Gemm")
def _gemm(layers: GrownNet, op: Op) -> str:
    x, weights = op.blob(layers), op.needed(1) * np.float32(op.get("alpha", 1.0))
    if op.get("transA", 0):
        x = layers.permute(x, (1, 0))
    if not op.get("transB", 0):
        weights = weights.T
    added, beta = op.inputs[2] if op.given(2) else None, op.get("beta", 1.0)
    if isinstance(added, np.ndarray):
        added = added * np.float32(beta)
        if added.ndim <= 2 and added.shape[:-1] in ((), (1,)):
            return _product(layers, x, weights, [np.broadcast_to(added.reshape(-1), (len(weights),))])
    elif added is not None:
        added = layers.affine(added, beta)
    y = _product(layers, x, weights, [])
    return y if added is None else add(layers, y, added)


@reads("MatMul")
def _mat_mul(layers: GrownNet, op: Op) -> str:
    a, b = op.inputs
    if isinstance(a, str) and isinstance(b, str):
        raise Unreadable("both its inputs are computed, where a layer multiplies by a constant")
    if isinstance(b, np.ndarray):
        return _by_constant(layers, op.blob(layers), b)
    assert isinstance(a, np.ndarray) and isinstance(b, str)
    return _of_constant(layers, a, b)


def _by_constant(layers: GrownNet, x: str, weights: np.ndarray) -> str:
    if weights.ndim > 2:
        raise Unreadable(f"its constant has shape {weights.shape}, where a layer has a matrix")
    shape = layers.shape(x)
    row = layers.reshape(x, (1, *shape)) if len(shape) == 1 else x
    y = _product(layers, row, weights.reshape(len(weights), -1).T, [])
    kept = shape[:-1] if len(shape) > 1 else ()
    return layers.reshape(y, (*kept, *weights.shape[1:]))


def _of_constant(layers: GrownNet, weights: np.ndarray, x: str) -> str:
    """Return the product of a constant matrix and a blob's last two axes: that of the other order, turned."""
    shape = layers.shape(x)
    if weights.ndim > 2 or len(shape) < 2:
        raise Unreadable(f"it multiplies shape {weights.shape} by {shape}, which no layer does")
    turned = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    y = _product(layers, layers.permute(x, turned), weights.reshape(-1, weights.shape[-1]), [])
    if weights.ndim == 1:
        return layers.reshape(y, layers.shape(y)[:-1])
    return layers.permute(y, turned)


def _product(layers: GrownNet, x: str, weights: np.ndarray, bias: list[np.ndarray]) -> str:
    """Add an InnerProduct over the last axis, by weights (outputs x inputs)."""
    axis = len(layers.shape(x)) - 1
    param = dict(num_output=len(weights), bias_term=bool(bias), axis=axis)
    return layers.add("InnerProduct", [x], [np.ascontiguousarray(weights), *bias], inner_product_param=param)
