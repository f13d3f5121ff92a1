"""Crop: a part of one blob, with the size of another."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, Layer, register


class Crop(Layer):
    """y = the part of bottom 0 that begins at `offset` and has bottom 1's size, on all axes from `axis` on.

    Both bottoms have the same number of axes. `offset` has one value for all cropped axes or one per axis, 0 by
    default. Only the shape of bottom 1 is used; its gradient is 0.
    """

    bottoms = (2, 2)
    bottom_names = "what to crop, one of the size wanted"

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape, wanted = bottom[0].shape, bottom[1].shape
        axis = self._axis(bottom)
        if len(wanted) != len(shape):
            raise self.shape_error(f"bottoms have shapes {shape} and {wanted}; give both the same number of axes")
        offsets = self._offsets(len(shape) - axis)
        for i, (size, offset, want) in enumerate(zip(shape[axis:], offsets, wanted[axis:], strict=True), axis):
            if offset + want > size:
                raise self.shape_error(
                    f"offset {offset} and {want} values on axis {i} reach beyond bottom 0 of shape {shape}; "
                    f"bottom 1 has shape {wanted}"
                )
        ends = map(sum, zip(offsets, wanted[axis:], strict=True))
        self.part = (slice(None),) * axis + tuple(map(slice, offsets, ends))
        top[0].reshape(*shape[:axis], *wanted[axis:])

    def _offsets(self, axes: int) -> list[int]:
        offsets = list(self.param.crop_param.offset) or [0]
        if len(offsets) not in (1, axes):
            raise self.error(f"crop_param has {len(offsets)} offset for {axes} cropped axes; give one, or one per axis")
        return offsets * axes if len(offsets) == 1 else offsets

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        top[0].array[...] = bottom[0].array[self.part]

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            bottom[0].diff_array[...] = 0
            bottom[0].diff_array[self.part] = top[0].diff_array
        if propagate_down[1]:
            bottom[1].diff_array[...] = 0  # only its shape counts

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if self._axis(bottom) else "it crops axis 0"

    def _axis(self, bottom: Blobs) -> int:
        return self.canonical_axis(self.param.crop_param.axis, bottom[0])


register("Crop", Crop)
