"""Input: tops that the caller fills."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.blob import Shape
from scaffe.layers.layer import ANY, Blobs, Layer, register


class Input(Layer):
    """Give the tops the shapes of the prototxt, with this rank's share of the batch on axis 0; the caller sets values.

    `shape` is given once for all tops, once per top, or not at all: then the caller reshapes the tops.
    """

    bottoms = (0, 0)
    tops = (1, ANY[1])
    unsaved = "the program sets its values"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        shapes = [tuple(shape.dim) for shape in self.param.input_param.shape]
        if len(shapes) not in (0, 1, len(top)):
            raise self.error(
                f"input_param has {len(shapes)} shapes for {len(top)} tops; give none, one, or one per top"
            )
        if len(shapes) == 1:
            shapes *= len(top)
        for blob, shape in zip(top, shapes):  # noqa: B905  without shapes the caller reshapes the tops
            blob.reshape(*self._share(shape))

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        pass

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        pass

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        pass

    def _share(self, shape: Shape) -> Shape:
        if min(shape, default=1) < 1:
            raise self.shape_error(f"input_param has shape {shape}; give each axis at least 1")
        return (self.context.take_share(self.name, shape[0]), *shape[1:]) if shape else shape


register("Input", Input)
