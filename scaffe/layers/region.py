"""Region: YOLOv2's predictions, with sigmoids and softmax applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.layer import Blobs, Layer, register
from scaffe.layers.sigmoid import sigmoid
from scaffe.layers.softmax import softmax


def boxes_of(layer: Layer, shape: Sequence[int], boxes: int, values: int) -> tuple[int, int, int, int]:
    """Return (N, boxes, values, H W) of a bottom with `boxes` boxes of `values` values for each pixel.

    Raise ShapeError for a bottom that has no such channels.
    """
    if len(shape) != 4 or shape[1] != boxes * values:
        raise layer.shape_error(
            f"bottom has shape {tuple(shape)}; {boxes} boxes of {values} values need N x {boxes * values} x H x W"
        )
    return shape[0], boxes, values, shape[2] * shape[3]


def activate(xp: Any, x: Any, coords: int, is_softmax: bool = True) -> Any:
    """Return the values (N x boxes x coords + 1 + classes x pixels) activated, an array of its own.

    The centre and the objectness become sigmoids, the classes a softmax, or sigmoids without `is_softmax`; the
    logarithms of the sides stay. Redmon and Farhadi 2016, section 2.
    """
    y = x.copy()
    for part in (y[:, :, :2], y[:, :, coords]):
        sigmoid(xp, part, part)
    classes = y[:, :, coords + 1 :]
    if is_softmax:
        softmax(xp, classes, classes, axis=2)
    else:
        sigmoid(xp, classes, classes)
    return y


class Region(Layer):
    """y = Darknet's region layer at inference: x and y (N x num (coords + 1 + classes) x H x W), of `region_param`.

    Each pixel has `num` boxes: centre, sides, objectness, classes. It has no gradient: nets are trained elsewhere.
    """

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.region_param
        if not param.classes or not param.num or param.coords < 4:
            raise self.error("region_param needs num and classes of at least 1, and coords of at least 4")
        self.view = boxes_of(self, bottom[0].shape, param.num, param.coords + 1 + param.classes)
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.region_param
        y = activate(self.xp, bottom[0].array.reshape(self.view), param.coords, param.softmax)
        top[0].array[...] = y.reshape(top[0].shape)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 0, "predictions")

    def allows_force_backward(self, bottom_index: int) -> bool:
        return False


register("Region", Region)
