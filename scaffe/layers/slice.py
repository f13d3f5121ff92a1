"""Slice: one bottom divided into several tops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from scaffe.blob import Shape
from scaffe.layers.layer import ANY, Blobs, Layer, register


class Slice(Layer):
    """Divide the bottom on `axis`, or `slice_dim` in old prototxt files, at each slice_point or into equal parts.

    Bottom (outer x C x inner), tops (outer x C_i x inner), where the C_i add up to C.
    """

    tops = (1, ANY[1])

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.slice_param
        if param.HasField("axis") and param.HasField("slice_dim"):
            raise self.error("slice_param has both axis and slice_dim; give axis alone")
        self.given_axis = param.slice_dim if param.HasField("slice_dim") else param.axis
        if param.slice_point and len(param.slice_point) != len(top) - 1:
            raise self.error(
                f"slice_param has {len(param.slice_point)} slice_point for {len(top)} tops; give one fewer than tops"
            )

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        self.axis = axis = self.canonical_axis(self.given_axis, bottom[0])
        self.ends = self._ends(shape, len(top))
        for blob, (start, stop) in zip(top, pairwise(self.ends), strict=True):
            blob.reshape(*shape[:axis], stop - start, *shape[axis + 1 :])

    def _ends(self, shape: Shape, parts: int) -> list[int]:
        """Return the first index of each part, and the end of the last part."""
        size, points = shape[self.axis], list(self.param.slice_param.slice_point)
        if not points:
            if size % parts:
                raise self.shape_error(f"{parts} tops don't divide axis {self.axis} of shape {shape}; give slice_point")
            points = [size // parts * i for i in range(1, parts)]
        ends = [0, *points, size]
        if any(stop <= start for start, stop in pairwise(ends)):
            raise self.shape_error(f"slice_point {points} must rise, inside axis {self.axis} of shape {shape}")
        return ends

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        for blob, part in zip(top, self._parts(), strict=True):
            blob.array[...] = bottom[0].array[part]

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            for blob, part in zip(top, self._parts(), strict=True):
                bottom[0].diff_array[part] = blob.diff_array

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if self.axis else "it cuts the batch on axis 0"

    def _parts(self) -> Iterator[tuple[slice, ...]]:
        """Yield the index of each top's part of the bottom."""
        for start, stop in pairwise(self.ends):
            yield (*(slice(None),) * self.axis, slice(start, stop))


register("Slice", Slice)
