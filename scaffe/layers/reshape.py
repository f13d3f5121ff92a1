"""Reshape: the same values in another shape."""

from __future__ import annotations

from math import prod

from scaffe.blob import Shape
from scaffe.layers.layer import Blobs, register
from scaffe.layers.reshaped import Reshaped


class Reshape(Reshaped):
    """y = x with `num_axes` axes, from `axis` on, replaced by the dims of `shape`; a view of x.

    A dim of 0 copies the bottom's dim. One dim may be -1; it is inferred from the number of elements. num_axes -1
    replaces all axes from `axis` on. axis -1 stands for the position after the last axis.
    """

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        first, last = self._replaced(shape)
        dims = self._copied(shape, first)
        around = shape[:first], shape[last:]
        if -1 in dims:
            dims[dims.index(-1)] = self._left_over(shape, [*around[0], *dims, *around[1]])
        target = (*around[0], *dims, *around[1])
        if prod(target) != bottom[0].count:
            raise self.shape_error(
                f"{bottom[0].count} values of shape {shape} do not fit shape {target}; "
                "set one dim to -1, and each dim that stays the same to 0"
            )
        top[0].reshape(*target)

    def _replaced(self, shape: Shape) -> tuple[int, int]:
        """Return the first replaced axis and the axis after the last."""
        param, axes = self.param.reshape_param, len(shape)
        first = param.axis + (axes + 1 if param.axis < 0 else 0)
        last = axes if param.num_axes == -1 else first + param.num_axes
        if param.num_axes < -1 or not 0 <= first <= last <= axes:
            raise self.shape_error(
                f"reshape_param has axis {param.axis} and num_axes {param.num_axes} for a bottom of shape {shape}"
            )
        return first, last

    def _copied(self, shape: Shape, first: int) -> list[int]:
        """Return the dims of `shape`, each 0 replaced by the bottom's dim."""
        dims = list(self.param.reshape_param.shape.dim)
        if dims.count(-1) > 1 or any(dim < -1 for dim in dims):
            raise self.error(f"reshape_param has dims {dims}; give 0, positive numbers, and at most one -1")
        for i, dim in enumerate(dims):
            if dim == 0 and first + i >= len(shape):
                raise self.shape_error(f"dim {i} of reshape_param is 0, but bottom {shape} has no axis {first + i}")
            dims[i] = dim or shape[first + i]
        return dims

    def _left_over(self, shape: Shape, target: list[int]) -> int:
        """Return the dim that the -1 in `target` stands for."""
        known = -prod(target)
        if not known or prod(shape) % known:
            raise self.shape_error(f"{prod(shape)} values of shape {shape} cannot be divided into {target}")
        return prod(shape) // known

    def mixes_samples(self, bottom: Blobs) -> str:
        """Return "" if axis 0 stays as it is, or is inferred and each sample makes whole rows."""
        dims, shape = self.param.reshape_param.shape.dim, bottom[0].shape
        first, last = self._replaced(shape)
        if first > 0 or (dims and dims[0] == 0):
            return ""
        rest = prod(self._copied(shape, first)[1:]) * prod(shape[last:])
        return "" if dims and dims[0] == -1 and prod(shape[1:]) % rest == 0 else "it replaces axis 0"


register("Reshape", Reshape)
