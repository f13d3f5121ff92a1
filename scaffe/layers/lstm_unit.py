"""LSTMUnit: one time step of a long short-term memory."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from scaffe.layers.layer import Blobs, Layer, register
from scaffe.layers.sigmoid import sigmoid


def quarters(gates: Any) -> tuple[Any, Any, Any, Any]:
    """Return the input, forget and output gates and the candidate (N x D each), views of `gates` (N x 4 D)."""
    size = gates.shape[1] // 4
    i, f, o, g = (gates[:, k * size : (k + 1) * size] for k in range(4))
    return i, f, o, g


def step(xp: ModuleType, gates: Any, cont: Any, before: Any, cell: Any, hidden: Any) -> None:
    """Compute `cell` and `hidden` (N x D) from the cell `before`; overwrite the gates' inputs with their values.

    c = cont f c' + i g, h = o tanh(c); cont (N x 1) is 0 where a sequence begins. The forget gates are overwritten
    with cont f.
    """
    i, f, o, g = quarters(gates)
    ifo = gates[:, : 3 * i.shape[1]]
    sigmoid(xp, ifo, ifo)
    xp.tanh(g, out=g)
    f *= cont
    xp.multiply(f, before, out=cell)
    cell += i * g
    xp.tanh(cell, out=hidden)
    hidden *= o


def step_back(xp: ModuleType, gates: Any, before: Any, cell: Any, dcell: Any, dhidden: Any, dgates: Any) -> Any:
    """Write the gradient of the gates' inputs into `dgates`; return the gradient of the cell `before`."""
    i, f, o, g = quarters(gates)
    di, df, do, dg = quarters(dgates)
    tanh = xp.tanh(cell)
    dcell = dcell + dhidden * o * (1 - tanh * tanh)
    xp.multiply(dcell * g, i * (1 - i), out=di)
    xp.multiply(dcell * before, f * (1 - f), out=df)
    xp.multiply(dhidden * tanh, o * (1 - o), out=do)
    xp.multiply(dcell * i, 1 - g * g, out=dg)
    return dcell * f


class LSTMUnit(Layer):
    """c = cont f c' + i g, h = o tanh(c), where i, f, o are sigmoids of the gates' inputs, and g is a tanh.

    Bottoms: the previous cell c' (1 x N x D); the inputs of i, f, o and g (1 x N x 4 D); cont (1 x N), 0 where a
    sequence begins, else 1. Tops: cell c and hidden values h (1 x N x D). Hochreiter and Schmidhuber 1997, with forget
    gates.
    """

    bottoms = (3, 3)
    bottom_names = "the cell before, inputs of the gates, cont"
    tops = (2, 2)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        cell, gates, cont = (blob.shape for blob in bottom)
        one, samples, size = cell if len(cell) == 3 else (0, 0, 0)
        if one != 1 or gates != (1, samples, 4 * size) or cont != (1, samples):
            raise self.shape_error(f"needs bottoms (1 x N x D), (1 x N x 4 D) and (1 x N), got {cell}, {gates}, {cont}")
        for blob in top:
            blob.reshape(*cell)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        before, inputs, cont = (blob.array[0] for blob in bottom)
        self.gates = self.buffer("gates", inputs.shape, inputs.dtype)
        self.gates[...] = inputs
        step(self.xp, self.gates, cont[:, None], before, top[0].array[0], top[1].array[0])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 2, "cont")
        dgates = self.buffer("gates' gradient", self.gates.shape, self.gates.dtype)
        dcell, dhidden = (blob.diff_array[0] for blob in top)
        dbefore = step_back(self.xp, self.gates, bottom[0].array[0], top[0].array[0], dcell, dhidden, dgates)
        for i, diff in enumerate((dbefore, dgates)):
            if propagate_down[i]:
                bottom[i].diff_array[0] = diff

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 2

    def mixes_samples(self, bottom: Blobs) -> str:
        return "its axis 0 is time and the batch is on axis 1"


register("LSTMUnit", LSTMUnit)
