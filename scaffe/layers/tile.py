"""Tile: copies of a blob along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from scaffe.layers.layer import Blobs, Layer, register


class Tile(Layer):
    """y = `tiles` copies of x, concatenated on `axis`; dx = the sum over the copies.

    x (outer x C x inner), y (outer x tiles C x inner).
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.tiles = self.param.tile_param.tiles
        if self.tiles < 1:
            raise self.error(f"tile_param has tiles {self.tiles}; give at least 1")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        axis, shape = self._axis(bottom), bottom[0].shape
        if not shape:
            raise self.shape_error("needs a bottom with at least one axis")
        self.view = prod(shape[:axis]), 1, prod(shape[axis:])
        top[0].reshape(*shape[:axis], shape[axis] * self.tiles, *shape[axis + 1 :])

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self._copies(top[0].array)[...] = bottom[0].array.reshape(self.view)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            dx = bottom[0].diff_array.reshape(self.view)
            self.xp.sum(self._copies(top[0].diff_array), axis=1, keepdims=True, out=dx)

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if self._axis(bottom) else "it repeats the batch on axis 0"

    def _copies(self, array: Any) -> Any:
        """Return the top's values as (outer x tiles x rest), a view."""
        return array.reshape(self.view[0], self.tiles, self.view[2])

    def _axis(self, bottom: Blobs) -> int:
        return self.canonical_axis(self.param.tile_param.axis, bottom[0])


register("Tile", Tile)
