"""Broadcast: the base of Scale and Bias."""

from __future__ import annotations

from math import prod
from typing import Any

from scaffe.blob import Blob
from scaffe.layers.layer import Blobs, Layer
from scaffe.proto import FillerParameter


class Broadcast(Layer):
    """Combine x with an operand that has a run of x's axes, starting at `axis`, and is broadcast over the others.

    The operand is the second bottom, or a parameter with `num_axes` axes (-1: all from `axis` on; 0: one number).
    x is viewed as (outer x operand x inner).
    """

    capturable = True
    bottoms = (1, 2)
    bottom_names = "x, the operand unless it is learned"
    in_place = True

    def add_operand(self, bottom: Blobs, axis: int, num_axes: int, filler: FillerParameter) -> None:
        """Create the parameter that is the operand. Raise ShapeError if x does not have its axes."""
        axis, shape = self.canonical_axis(axis, bottom[0]), bottom[0].shape
        last = len(shape) if num_axes == -1 else axis + num_axes
        if num_axes < -1 or last > len(shape):
            raise self.shape_error(f"num_axes {num_axes} from axis {axis} of a bottom of shape {shape}; -1 means all")
        self.add_blob(shape[axis:last], filler)

    def operand(self, bottom: Blobs) -> Blob:
        """Return the operand: the second bottom or the parameter."""
        return bottom[1] if len(bottom) > 1 else self.blobs[0]

    def set_view(self, bottom: Blobs, axis: int) -> None:
        """Set `view`, x's shape as three axes. Raise ShapeError if the operand's shape is not a part of x's."""
        shape, part = bottom[0].shape, self.operand(bottom).shape
        first = self.canonical_axis(axis, bottom[0]) if part else 0
        if shape[first : first + len(part)] != part:
            raise self.shape_error(
                f"an operand of shape {part} does not match a bottom of shape {shape} from axis {first} on"
            )
        self.view = prod(shape[:first]), prod(part), prod(shape[first + len(part) :])

    def spread(self, values: Any) -> Any:
        """Return the operand's values, a view that broadcasts over x (1 x operand x 1)."""
        return values.reshape(1, -1, 1)

    def add_diff(self, dy: Any, blob: Blob, overwrite: bool) -> None:
        """Sum `dy` (outer x operand x inner) into the gradient of an operand: overwrite it, or add to it."""
        diff = blob.diff_array.reshape(-1)
        if overwrite:
            self.xp.sum(dy, axis=(0, 2), out=diff)
        else:
            diff += dy.sum(axis=(0, 2))

    def operand_mixes_samples(self, bottom: Blobs, axis: int) -> str:
        """Return why the batch cannot be divided: a learned operand that has axis 0; "" if it can."""
        ties = len(bottom) == 1 and self.blobs[0].shape and self.canonical_axis(axis, bottom[0]) == 0
        return "its parameter has axis 0, one value per sample" if ties else ""
