"""Upsample: larger images, by the places of a pooling's maxima or by repetition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.layer import Blobs, Layer, register


class Upsample(Layer):
    """Two forks have this type; the number of bottoms tells whose it is.

    SegNet's and ENet's, two bottoms: y (N x C x upsample_h x upsample_w) has each value of x (N x C x H x W) at the
    place h * upsample_w + w that bottom 1 names, the second top of a MAX Pooling, and is 0 elsewhere. Without
    `upsample_h` and `upsample_w` the size is `scale` or `scale_h`, `scale_w` times that of x, less 1 with `pad_out_h`,
    `pad_out_w`. Badrinarayanan et al. 2015, section 3.

    YOLO's, one bottom: each pixel is repeated `scale` times on both axes.
    """

    bottoms = (1, 2)
    bottom_names = "x, and in SegNet's the places of its values"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.upsample_param
        self.form: Any = _Placed(self) if len(bottom) == 2 else _Repeated(self)
        for axis in "hw":
            if getattr(param, f"pad_out_{axis}") and self.form.scale(axis) != 2:
                raise self.error(f"pad_out_{axis} takes scale 2, got {self.form.scale(axis)}; give upsample_{axis}")
        if not (self.form.scale("h") and self.form.scale("w")):
            raise self.error("upsample_param has a scale of 0; give 1 or more")
        if len(bottom) == 1 and not param.HasField("scale"):
            raise self.error("of one bottom, YOLO's, needs upsample_param { scale: }, whose default differs in forks")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        if any(len(blob.shape) != 4 or blob.shape != shape for blob in bottom):
            shapes = " and ".join(str(blob.shape) for blob in bottom)
            raise self.shape_error(f"bottoms have shapes {shapes}; give 4 axes (N x C x H x W), the same for both")
        top[0].reshape(*shape[:2], *(self.form.size(axis, n) for axis, n in zip("hw", shape[2:], strict=True)))

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self.form.forward(bottom, top[0].array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if len(bottom) == 2:
            self.refuse_gradient(propagate_down, 1, "places")
        if propagate_down[0]:
            self.form.backward(top[0].diff_array, bottom[0].diff_array)

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index == 0


class _Placed:
    """Values at the places of the maxima."""

    def __init__(self, layer: Upsample):
        self.layer, self.param = layer, layer.param.upsample_param

    def scale(self, axis: str) -> int:
        pair = self.param.HasField("scale_h") or self.param.HasField("scale_w")
        return int(getattr(self.param, f"scale_{axis}") if pair else self.param.scale)

    def size(self, axis: str, size: int) -> int:
        given = getattr(self.param, f"upsample_{axis}")
        return int(given or size * self.scale(axis) - getattr(self.param, f"pad_out_{axis}"))

    def forward(self, bottom: Blobs, y: Any) -> None:
        xp, x = self.layer.xp, bottom[0].array
        places, pixels = bottom[1].array.reshape(-1, x[0, 0].size).astype(int), y[0, 0].size
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < pixels:
            raise self.layer.error(
                f"bottom 1 names pixel {int(places.max())} of images of {y.shape[2]} x {y.shape[3]}; give the size of "
                "the Pooling's bottom as upsample_h and upsample_w"
            )
        self.places = (places + (xp.arange(len(places)) * pixels)[:, None]).reshape(-1)
        y[...] = 0
        y.reshape(-1)[self.places] = x.reshape(-1)

    def backward(self, dy: Any, dx: Any) -> None:
        dx.reshape(-1)[...] = dy.reshape(-1)[self.places]


class _Repeated:
    """Each pixel as a square."""

    def __init__(self, layer: Upsample):
        self.param = layer.param.upsample_param

    def scale(self, axis: str) -> int:
        return int(self.param.scale)

    def size(self, axis: str, size: int) -> int:
        return size * int(self.param.scale)

    def forward(self, bottom: Blobs, y: Any) -> None:
        self._squares(y)[...] = bottom[0].array[:, :, :, None, :, None]

    def backward(self, dy: Any, dx: Any) -> None:
        dx[...] = self._squares(dy).sum(axis=(3, 5))

    def _squares(self, array: Any) -> Any:
        """Return an array as (N x C x H x scale x W x scale), a view."""
        n, c, h, w = array.shape
        s = self.param.scale
        return array.reshape(n, c, h // s, s, w // s, s)


register("Upsample", Upsample)
