"""Recurrent: the base of layers that process sequences step by step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from scaffe.layers.layer import Blobs, Layer


class _WeightedBottom(NamedTuple):
    """A bottom with weights: the bottom's index, its weights' index in `blobs`, and its first axis of inputs."""

    bottom: int
    weight: int
    axis: int


X, STATIC = _WeightedBottom(0, 0, 2), _WeightedBottom(2, 2, 1)


class Recurrent(Layer):
    """Process N sequences in T steps. A step reads its input and the D hidden values of the previous step.

    Bottoms: x (T x N x ...); cont (T x N), 0 where a sequence begins, else 1; optionally a static input (N x ...);
    with `expose_hidden` the initial state, blobs (1 x N x D). Tops: y (T x N x D); with `expose_hidden` the final
    state, blobs (1 x N x D). As in Caffe, no gradient passes through the state's bottoms and tops. Without them, the
    state carries over from one forward pass to the next.

    Parameters: W_x (width D x inputs), b (width D), W_static (width D x static inputs) if there is a static input,
    and W_h (width D x D). A step's pre-activations are W_x x_t + b + W_static static + W_h cont_t h_(t-1); subclasses
    compute the step's state from them.
    """

    width: int  # pre-activations per hidden value
    states: int  # blobs of state, of which the first holds the hidden values

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.recurrent_param
        self.outputs = param.num_output
        if not self.outputs:
            raise self.error("recurrent_param needs num_output, at least 1")
        exposed = self.states if param.expose_hidden else 0
        if len(bottom) - exposed not in (2, 3) or len(top) != 1 + exposed:
            raise self.error(
                f"with expose_hidden {str(param.expose_hidden).lower()} takes {2 + exposed} bottoms, or {3 + exposed} "
                f"with a static input, and {1 + exposed} top(s), got {len(bottom)} and {len(top)}"
            )
        self.inputs = [X, STATIC] if len(bottom) - exposed == 3 else [X]
        self.exposed = range(len(bottom) - exposed, len(bottom))
        self.unsaved = "" if exposed else "its state carries over from one pass to the next"
        self._add_blobs(bottom)

    def _add_blobs(self, bottom: Blobs) -> None:
        param, rows = self.param.recurrent_param, self.width * self.outputs
        for source in self.inputs:
            self.add_blob((rows, prod(bottom[source.bottom].shape[source.axis :])), param.weight_filler)
            if source is X:
                self.add_blob((rows,), param.bias_filler)
        self.recurrence = len(self.blobs)  # index of W_h
        self.add_blob((rows, self.outputs), param.weight_filler)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self._check_shapes(bottom)
        self.time, self.sequences = bottom[0].shape[:2]
        top[0].reshape(self.time, self.sequences, self.outputs)
        for blob in top[1:]:
            blob.reshape(1, self.sequences, self.outputs)

    def _check_shapes(self, bottom: Blobs) -> None:
        x, cont = bottom[0].shape, bottom[1].shape
        if len(x) < 2 or cont != x[:2]:
            raise self.shape_error(f"needs bottoms (T x N x ...) and (T x N), got {x} and {cont}")
        for i, weight, axis in self.inputs:
            shape, expected = bottom[i].shape, self.blobs[weight].shape[1]
            if shape[axis - 1 : axis] != x[1:2] or prod(shape[axis:]) != expected:
                raise self.shape_error(
                    f"bottom {i} has shape {shape}; its weights take {expected} inputs of each of {x[1]} sequences"
                )
        for i in self.exposed:
            if bottom[i].shape != (1, x[1], self.outputs):
                raise self.shape_error(f"bottom {i} has shape {bottom[i].shape}; give {(1, x[1], self.outputs)}")

    # Methods that subclasses implement.

    def step(self, t: int, cont: Any) -> None:
        """Compute `state[:, t + 1]` from `state[:, t]` and the pre-activations `pre[t]`, which may be overwritten."""
        raise NotImplementedError

    def finish(self, hidden: Any, y: Any) -> None:
        """Compute the top y from the hidden values (T x N x D)."""
        raise NotImplementedError

    def begin_back(self, hidden: Any, dy: Any) -> Any:
        """Return the gradient of the hidden values (T x N x D); add to the gradients of parameters after them."""
        raise NotImplementedError

    def step_back(self, t: int, dhidden: Any, dpre: Any) -> None:
        """Write the gradient of the pre-activations of step t into `dpre`, given the gradient of its hidden values."""
        raise NotImplementedError

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        xp, dtype, shape = self.xp, bottom[0].array.dtype, (self.sequences, self.outputs)
        carried = self.buffer("carried", (self.states, *shape), dtype)
        for state, i in zip(carried, self.exposed, strict=False):
            state[...] = bottom[i].array[0]
        self.state = self.buffer("state", (self.states, self.time + 1, *shape), dtype)
        self.continued = self.buffer("continued", (self.time, *shape), dtype)  # cont_t h_(t-1)
        self.pre = self._input_products(bottom)
        self.state[:, 0] = carried
        cont, weight = bottom[1].array[:, :, None], self.blobs[self.recurrence].array.T
        for t in range(self.time):
            xp.multiply(self.state[0, t], cont[t], out=self.continued[t])
            self.context.engine.multiply(self.continued[t], weight, self.pre[t], add=True)
            self.step(t, cont[t])
        self.finish(self.state[0, 1:], top[0].array)
        carried[...] = self.state[:, -1]
        for blob, state in zip(top[1:], carried, strict=False):
            blob.array[0] = state

    def _input_products(self, bottom: Blobs) -> Any:
        """Return W_x x + b + W_static static, (T x N x width D)."""
        rows = self.width * self.outputs
        pre = self.buffer("pre", (self.time, self.sequences, rows), bottom[0].array.dtype)
        for source in self.inputs:
            inputs = self._rows(source, bottom[source.bottom].array)
            product = self.buffer(f"product {source.weight}", (len(inputs), rows), inputs.dtype)
            self.context.engine.multiply(inputs, self.blobs[source.weight].array.T, product)
            if source is X:
                self.xp.add(product.reshape(pre.shape), self.blobs[1].array, out=pre)
            else:
                pre += product
        return pre

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 1, "cont")
        dpre = self.buffer("pre's gradient", self.pre.shape, self.pre.dtype)
        dhidden = self.begin_back(self.state[0, 1:], top[0].diff_array)
        cont, weight = bottom[1].array[:, :, None], self.blobs[self.recurrence].array
        later: Any = 0  # the part of the hidden values' gradient that comes from the next step
        for t in reversed(range(self.time)):
            self.step_back(t, dhidden[t] + later, dpre[t])
            later = self.buffer("later", (self.sequences, self.outputs), dpre.dtype)
            self.context.engine.multiply(dpre[t], weight, later)
            later *= cont[t]
        self._add_diffs(dpre, propagate_down, bottom)

    def _add_diffs(self, dpre: Any, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute the gradients of parameters and bottoms from the gradient of the pre-activations."""
        flat = dpre.reshape(-1, dpre.shape[2])
        self.add_product(self.recurrence, flat, self.continued.reshape(len(flat), -1))
        self.add_sum(1, flat)
        for source in self.inputs:
            dy, blob = flat if source is X else dpre.sum(axis=0), bottom[source.bottom]
            self.add_product(source.weight, dy, self._rows(source, blob.array))
            if propagate_down[source.bottom]:
                dx = self._rows(source, blob.diff_array)
                self.context.engine.multiply(dy, self.blobs[source.weight].array, dx)
        for i in self.exposed:
            if propagate_down[i]:
                bottom[i].diff_array[...] = 0

    def add_product(self, index: int, dy: Any, x: Any) -> None:
        """Add dy^T x to the gradient of the weights `index`; dy (rows x out), x (rows x in)."""
        if self.param_propagate_down[index]:
            diff = self.blobs[index].diff_array
            part = self.buffer(f"weight diff {index}", diff.shape, diff.dtype)
            self.context.engine.multiply(dy.T, x, part)
            diff += part

    def add_sum(self, index: int, dy: Any) -> None:
        """Add the sum of dy (rows x out) over its rows to the gradient of the bias `index`."""
        if self.param_propagate_down[index]:
            diff = self.blobs[index].diff_array
            diff += dy.sum(axis=0)

    def _rows(self, source: _WeightedBottom, array: Any) -> Any:
        """Return a bottom's array as rows of inputs, a view."""
        return array.reshape(-1, self.blobs[source.weight].shape[1])

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1

    def mixes_samples(self, bottom: Blobs) -> str:
        return "its axis 0 is time and the batch is on axis 1"
