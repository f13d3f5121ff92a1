"""Concat: bottoms concatenated on an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from scaffe.layers.layer import ANY, Blobs, Layer, register


class Concat(Layer):
    """Concatenate the bottoms on `axis`, or `concat_dim` in old prototxt files.

    Bottoms (outer x C_i x inner), which differ in C_i only; top (outer x sum of C_i x inner).
    """

    bottoms = (1, ANY[1])

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.concat_param
        if param.HasField("axis") and param.HasField("concat_dim"):
            raise self.error("concat_param has both axis and concat_dim; give axis alone")
        self.given_axis = param.concat_dim if param.HasField("concat_dim") else param.axis

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        self.axis = axis = self.canonical_axis(self.given_axis, bottom[0])
        for blob in bottom[1:]:
            if len(blob.shape) != len(shape) or _without(axis, blob.shape) != _without(axis, shape):
                raise self.shape_error(
                    f"bottoms have shapes {shape} and {blob.shape}; they may differ on axis {axis} only"
                )
        top[0].reshape(*shape[:axis], sum(blob.shape[axis] for blob in bottom), *shape[axis + 1 :])

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        for blob, part in zip(bottom, self._parts(bottom, top[0].array), strict=True):
            part[...] = blob.array

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        parts = self._parts(bottom, top[0].diff_array)
        for blob, down, part in zip(bottom, propagate_down, parts, strict=True):
            if down:
                blob.diff_array[...] = part

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if self.axis else "it joins its bottoms on axis 0"

    def _parts(self, bottom: Blobs, array: Any) -> Iterator[Any]:
        """Yield each bottom's part of the top's `array`, a view."""
        start, front = 0, (slice(None),) * self.axis
        for blob in bottom:
            stop = start + blob.shape[self.axis]
            yield array[(*front, slice(start, stop))]
            start = stop


def _without(axis: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


register("Concat", Concat)
