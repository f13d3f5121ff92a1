"""InnerProduct: the fully connected layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from scaffe.layers.layer import Blobs, Layer, register


class InnerProduct(Layer):
    """y = x W^T + b.

    x (M... x K...), where the axes from `axis` on count as one; y (M... x N), N `num_output`. Parameters: W (N x K), or
    (K x N) with `transpose`; b (N) unless `bias_term` is false.
    """

    capturable = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.inner_product_param
        if not param.num_output:
            raise self.error("inner_product_param needs num_output, at least 1")
        self.outputs, self.transpose, self.bias_term = param.num_output, param.transpose, param.bias_term
        axis = self.canonical_axis(param.axis, bottom[0])
        self.inputs = prod(bottom[0].shape[axis:])
        shape = (self.inputs, self.outputs) if self.transpose else (self.outputs, self.inputs)
        self.add_blob(shape, param.weight_filler)
        if self.bias_term:
            self.add_blob((self.outputs,), param.bias_filler)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        axis = self.canonical_axis(self.param.inner_product_param.axis, bottom[0])
        shape = bottom[0].shape
        if prod(shape[axis:]) != self.inputs:
            raise self.shape_error(
                f"bottom has shape {shape}, {prod(shape[axis:])} inputs from axis {axis} on, but the weights have "
                f"shape {self.blobs[0].shape}, for {self.inputs} inputs; give the bottom the size it was made with"
            )
        self.rows = prod(shape[:axis])
        top[0].reshape(*shape[:axis], self.outputs)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = bottom[0].array.reshape(self.rows, -1), top[0].array.reshape(self.rows, -1)
        self.context.engine.multiply(x, self.weight(self.blobs[0].array).T, y)
        if self.bias_term:
            y += self.blobs[1].array

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        x, dy = bottom[0].array.reshape(self.rows, -1), top[0].diff_array.reshape(self.rows, -1)
        if self.param_propagate_down[0]:
            diff = self.weight(self.blobs[0].diff_array)
            part = self.buffer("weight diff", diff.shape, diff.dtype)
            self.context.engine.multiply(dy.T, x, part)
            diff += part
        self.add_bias_diff(dy)
        if propagate_down[0]:
            dx = bottom[0].diff_array.reshape(self.rows, -1)
            self.context.engine.multiply(dy, self.weight(self.blobs[0].array), dx)

    def mixes_samples(self, bottom: Blobs) -> str:
        axis = self.canonical_axis(self.param.inner_product_param.axis, bottom[0])
        return "" if axis else "it takes the whole batch as one input (axis 0)"

    def add_bias_diff(self, dy: Any) -> None:
        """Add the sum of `dy` (rows... x outputs) over its rows to the bias's gradient, if the bias is learned."""
        if self.bias_term and self.param_propagate_down[1]:
            diff = self.blobs[1].diff_array
            diff += dy.reshape(-1, self.outputs).sum(axis=0)

    def weight(self, array: Any) -> Any:
        """Return the weights or their gradient as (N x K), a view."""
        return array.T if self.transpose else array


register("InnerProduct", InnerProduct)
