"""RNN: a recurrent net with one hidden layer."""

from __future__ import annotations

from typing import Any

from scaffe.layers.layer import Blobs, register
from scaffe.layers.recurrent import Recurrent


class RNN(Recurrent):
    """h_t = tanh(W_x x_t + b + W_h h_(t-1)), y_t = tanh(W_o h_t + b_o). Bottoms and tops: see Recurrent.

    W_o (D x D) and b_o (D) are the last two parameters.
    """

    width = 1
    states = 1
    bottoms = (2, 4)
    tops = (1, 2)

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        super().setup(bottom, top)
        param = self.param.recurrent_param
        self.add_blob((self.outputs, self.outputs), param.weight_filler)
        self.add_blob((self.outputs,), param.bias_filler)

    def step(self, t: int, cont: Any) -> None:
        self.xp.tanh(self.pre[t], out=self.state[0, t + 1])

    def finish(self, hidden: Any, y: Any) -> None:
        weight, bias = (blob.array for blob in self.blobs[-2:])
        self.context.engine.multiply(hidden, weight.T, y)
        y += bias
        self.output = self.xp.tanh(y, out=self.buffer("output", y.shape, y.dtype))
        y[...] = self.output

    def begin_back(self, hidden: Any, dy: Any) -> Any:
        flat = (dy * (1 - self.output * self.output)).reshape(-1, self.outputs)
        self.add_product(len(self.blobs) - 2, flat, hidden.reshape(flat.shape))
        self.add_sum(len(self.blobs) - 1, flat)
        product = self.buffer("hidden's gradient", flat.shape, flat.dtype)
        self.context.engine.multiply(flat, self.blobs[-2].array, product)
        return product.reshape(dy.shape)

    def step_back(self, t: int, dhidden: Any, dpre: Any) -> None:
        hidden = self.state[0, t + 1]
        self.xp.multiply(dhidden, 1 - hidden * hidden, out=dpre)


register("RNN", RNN)
