"""DummyData: tops whose values come from fillers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from scaffe.blob import Blob, Shape
from scaffe.blobs.fillers import fill
from scaffe.layers.layer import ANY, Blobs, Layer, register
from scaffe.proto import FillerParameter

T = TypeVar("T")
LEGACY = ("num", "channels", "height", "width")


class DummyData(Layer):
    """Fill the tops: once with constant fillers, in each forward pass with random fillers.

    Shapes are given by `shape`, or by `num`, `channels`, `height` and `width`; there is one for all tops or one per
    top. `data_filler` has one filler for all tops or one per top, zeros by default. A rank's values are its rows of
    the values that one rank would have.
    """

    bottoms = (0, 0)
    tops = (1, ANY[1])

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.dummy_data_param
        if param.shape and any(getattr(param, field) for field in LEGACY):
            raise self.error(f"dummy_data_param has both shape and {', '.join(LEGACY)}; give shape alone")
        shapes = [tuple(shape.dim) for shape in param.shape] or self._legacy_shapes(param, len(top))
        self.fillers = self._one_each(list(param.data_filler) or [FillerParameter()], top, "data_filler")
        shapes = self._one_each(shapes, top, "shape")
        self.rows = [self._share(blob, shape) for blob, shape in zip(top, shapes, strict=True)]
        self.filled = False

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        pass

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        for i, (blob, filler) in enumerate(zip(top, self.fillers, strict=True)):
            if filler.type != "constant":
                blob.array[...] = self.xp.asarray(self._draw(i, blob))
            elif not self.filled:
                blob.array[...] = filler.value
        self.filled = True

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        pass

    def _draw(self, i: int, blob: Blob) -> np.ndarray:
        """Return this rank's rows of top i, from a filled array of the rows of all ranks."""
        first, total = self.rows[i]
        values = np.empty((total, *blob.shape[1:]), np.float32)
        rng = self.context.generator("dummy", self.label, i, self.context.batch_number)
        fill(values, self.fillers[i], rng, f"layer '{self.name}'")
        return values[first : first + blob.num]

    def _share(self, blob: Blob, shape: Shape) -> tuple[int, int]:
        """Set a top's shape; return its first row in the global batch and the rows of the global batch."""
        if not shape or min(shape) < 1:
            raise self.shape_error(f"dummy_data_param has shape {shape}; give it axes, each at least 1")
        blob.reshape(self.context.take_share(self.name, shape[0]), *shape[1:])
        return self.context.first_row, self.context.total_rows or blob.num

    def _legacy_shapes(self, param: Any, tops: int) -> list[Shape]:
        """Return the shapes by num, channels, height and width: one value each, or one value per top."""
        fields = [list(getattr(param, field)) for field in LEGACY]
        if not any(fields):
            return []
        for name, values in zip(LEGACY, fields, strict=True):
            if len(values) not in (1, tops):
                raise self.error(f"dummy_data_param has {len(values)} {name} for {tops} tops; give one, or one per top")
        return list(zip(*(values * tops if len(values) == 1 else values for values in fields), strict=True))

    def _one_each(self, values: list[T], top: Blobs, field: str) -> list[T]:
        if len(values) not in (1, len(top)):
            raise self.error(
                f"dummy_data_param has {len(values)} {field} for {len(top)} tops; give one, or one per top"
            )
        return values * len(top) if len(values) == 1 else values


register("DummyData", DummyData)
