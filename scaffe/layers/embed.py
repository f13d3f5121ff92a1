"""Embed: a learned vector for each index."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.labels import class_indices
from scaffe.layers.layer import Blobs, Layer, register


class Embed(Layer):
    """y[m] = W[x[m]] + b.

    x (M...), integers from 0 to K - 1 held as floats; y (M... x N). Parameters: W (K x N), b (N) unless `bias_term` is
    false; K is `input_dim`, N `num_output`. Raise LabelError for any other value of x, which has no gradient.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.embed_param
        for field in ("num_output", "input_dim"):
            if not getattr(param, field):
                raise self.error(f"embed_param needs {field}, at least 1")
        self.outputs, self.words, self.bias_term = param.num_output, param.input_dim, param.bias_term
        self.add_blob((self.words, self.outputs), param.weight_filler)
        if self.bias_term:
            self.add_blob((self.outputs,), param.bias_filler)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        top[0].reshape(*bottom[0].shape, self.outputs)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        indices, _ = class_indices(self, bottom[0], self.words, None)
        self.indices = indices.reshape(-1)
        y = top[0].array.reshape(-1, self.outputs)
        self.xp.take(self.blobs[0].array, self.indices, axis=0, out=y)
        if self.bias_term:
            y += self.blobs[1].array

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 0, "integers")
        dy = top[0].diff_array.reshape(-1, self.outputs)
        if self.param_propagate_down[0]:
            self.xp.add.at(self.blobs[0].diff_array, self.indices, dy)
        if self.bias_term and self.param_propagate_down[1]:
            diff = self.blobs[1].diff_array
            diff += dy.sum(axis=0)

    def allows_force_backward(self, bottom_index: int) -> bool:
        return False


register("Embed", Embed)
