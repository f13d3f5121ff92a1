"""Recurrent: the base of layers that process sequences step by step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from scaffe.blob import Blob
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

    Caffe has neither of these fields:

    - `batch_first`: x is (N x T x ...), cont (N x T) and y (N x T x D), so that ranks can divide the batch.
    - `reverse`: the steps are processed from the last to the first; cont is 0 at the last step of a sequence.

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
        self.batch_first, self.reverse = param.batch_first, param.reverse
        if self.batch_first and param.expose_hidden:
            raise self.error("takes batch_first or expose_hidden, not both: exposed states have the batch on axis 1")
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
        first, second = bottom[0].shape[:2]
        self.time, self.sequences = (second, first) if self.batch_first else (first, second)
        top[0].reshape(first, second, self.outputs)
        for blob in top[1:]:
            blob.reshape(1, self.sequences, self.outputs)

    def _check_shapes(self, bottom: Blobs) -> None:
        x, cont = bottom[0].shape, bottom[1].shape
        if len(x) < 2 or cont != x[:2]:
            axes = "N x T" if self.batch_first else "T x N"
            raise self.shape_error(f"needs bottoms ({axes} x ...) and ({axes}), got {x} and {cont}")
        sequences = x[0] if self.batch_first else x[1]
        for source in self.inputs:
            shape, expected = bottom[source.bottom].shape, self.blobs[source.weight].shape[1]
            if (source is STATIC and shape[:1] != (sequences,)) or prod(shape[source.axis :]) != expected:
                raise self.shape_error(
                    f"bottom {source.bottom} has shape {shape}; "
                    f"its weights take {expected} inputs of each of {sequences} sequences"
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
        cont, weight = self._in_steps(bottom[1].array)[:, :, None], self.blobs[self.recurrence].array.T
        for t in range(self.time):
            xp.multiply(self.state[0, t], cont[t], out=self.continued[t])
            self.context.engine.multiply(self.continued[t], weight, self.pre[t], add=True)
            self.step(t, cont[t])
        self._finish(top[0])
        carried[...] = self.state[:, -1]
        for blob, state in zip(top[1:], carried, strict=False):
            blob.array[0] = state

    def _finish(self, top: Blob) -> None:
        hidden, y = self.state[0, 1:], top.array
        if not (self.batch_first or self.reverse):
            self.finish(hidden, y)
            return
        ordered = self.buffer("y", hidden.shape, y.dtype)
        self.finish(hidden, ordered)
        self._in_steps(y)[...] = ordered

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
        dhidden = self.begin_back(self.state[0, 1:], self._in_steps(top[0].diff_array))
        cont, weight = self._in_steps(bottom[1].array)[:, :, None], self.blobs[self.recurrence].array
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
                self._write_dx(source, dy, blob)
        for i in self.exposed:
            if propagate_down[i]:
                bottom[i].diff_array[...] = 0

    def _write_dx(self, source: _WeightedBottom, dy: Any, blob: Blob) -> None:
        """Compute a bottom's gradient from that of the pre-activations, dy (rows x width D)."""
        weight, dx = self.blobs[source.weight].array, blob.diff_array
        if source is STATIC or not (self.batch_first or self.reverse):
            self.context.engine.multiply(dy, weight, self._rows(source, dx))
            return
        steps = self._in_steps(dx)
        ordered = self.buffer("dx", steps.shape, dx.dtype)
        self.context.engine.multiply(dy, weight, ordered.reshape(len(dy), -1))
        steps[...] = ordered

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
        """Return a bottom's array as rows of inputs, those of x in the order of processing."""
        steps = self._in_steps(array) if source is X else array
        return steps.reshape(-1, self.blobs[source.weight].shape[1])

    def _in_steps(self, array: Any) -> Any:
        """Return the array of x, cont or y as (T x N x ...), its steps in the order of processing, a view."""
        steps = array.swapaxes(0, 1) if self.batch_first else array
        return steps[::-1] if self.reverse else steps

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if self.batch_first else "without batch_first its axis 0 is time and the batch is on axis 1"
