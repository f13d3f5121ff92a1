"""LSTM, RNN and LSTMUnit, step by step, as Caffe unrolls them: a model has the net's number of steps.

A state that carries over from one forward pass to the next is 0 before each run of a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from scaffe.onnx.graph import Graph
from scaffe.onnx.writers import Blobs, Names, writes


@writes("LSTM", "RNN")
def _recurrent(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    axis = 1 if layer.batch_first else 0  # of the steps
    before = _steps(g, _products(g, layer, bottom, names), layer.time, axis)
    conts = _steps(g, g.op("Unsqueeze", names[1], g.numbers([2])), layer.time, axis)
    weights = g.constant(layer.blobs[layer.recurrence].data, "recurrent_weights")
    states = [g.op("Squeeze", names[i], g.numbers([0])) for i in layer.exposed] or _zeros(g, layer, conts[0])
    hidden = [""] * layer.time
    for t in reversed(range(layer.time)) if layer.reverse else range(layer.time):
        continued = g.op("Mul", states[0], conts[t])
        pre = g.op("Add", before[t], g.op("Gemm", continued, weights, transB=1))
        states = [g.op("Tanh", pre)] if layer.states == 1 else _unit(g, pre, conts[t], states[1], layer.outputs)
        hidden[t] = states[0]
    joined = g.op("Concat", *(g.op("Unsqueeze", h, g.numbers([axis])) for h in hidden), axis=axis)
    exposed = [g.op("Unsqueeze", state, g.numbers([0])) for state in states] if layer.exposed else []
    return [_finish(g, layer, joined) if layer.type == "RNN" else joined, *exposed]


@writes("LSTMUnit")
def _lstm_unit(g: Graph, layer: Any, bottom: Blobs, top: Blobs, names: Names) -> Names:
    cell, gates = (g.op("Squeeze", name, g.numbers([0])) for name in names[:2])
    cont = g.reshape(names[2], [bottom[2].shape[1], 1])
    hidden, cell = _unit(g, gates, cont, cell, bottom[0].shape[2])
    return [g.op("Unsqueeze", one, g.numbers([0])) for one in (cell, hidden)]


def _unit(g: Graph, gates: str, cont: str, before: str, size: int) -> list[str]:
    """Return the hidden values and the cell (N x D) of the gates' inputs (N x 4 D): i, f, o and g."""
    parts = g.ops("Split", 4, gates, g.numbers([size] * 4), axis=1)
    i, f, o = (g.op("Sigmoid", part) for part in parts[:3])
    kept = g.op("Mul", g.op("Mul", f, cont), before)
    cell = g.op("Add", kept, g.op("Mul", i, g.op("Tanh", parts[3])))
    return [g.op("Mul", o, g.op("Tanh", cell)), cell]


def _products(g: Graph, layer: Any, bottom: Blobs, names: Names) -> str:
    """Return W_x x + b + W_static static, (T x N x width D), or (N x T x width D)."""
    first, second = bottom[0].shape[:2]
    products = []
    for source in layer.inputs:
        inputs = prod(bottom[source.bottom].shape[source.axis :])
        rows = g.reshape(names[source.bottom], [-1, inputs])
        bias = [g.constant(layer.blobs[1].data, "bias")] if source.bottom == 0 else []
        weights = g.constant(layer.blobs[source.weight].data, "weights")
        products.append(g.op("Gemm", rows, weights, *bias, transB=1))
    width = layer.blobs[0].shape[0]
    x = g.reshape(products[0], [first, second, width])
    for static in products[1:]:
        x = g.op("Add", x, g.op("Unsqueeze", static, g.numbers([1 if layer.batch_first else 0])))
    return x


def _steps(g: Graph, x: str, time: int, axis: int) -> Sequence[str]:
    """Return the value of each step, without the steps' axis."""
    parts = g.ops("Split", time, x, g.numbers([1] * time), axis=axis) if time > 1 else [x]
    return [g.op("Squeeze", part, g.numbers([axis])) for part in parts]


def _zeros(g: Graph, layer: Any, cont: str) -> list[str]:
    """Return the states before the first step (N x D), N that of a step's cont (N x 1)."""
    none = g.op("Mul", cont, g.constant(np.zeros((1, layer.outputs), np.float32), "zeros"))
    return [none] * layer.states


def _finish(g: Graph, layer: Any, hidden: str) -> str:
    """Return the tops of an RNN: tanh(W_o h + b_o)."""
    weights, bias = layer.blobs[-2:]
    product = g.op("MatMul", hidden, g.constant(np.ascontiguousarray(weights.data.T), "output_weights"))
    return g.op("Tanh", g.op("Add", product, g.constant(bias.data, "output_bias")))
