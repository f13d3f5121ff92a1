"""Interp: images of another size, by bilinear interpolation between the corners."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.layer import Blobs, Layer, register


class Interp(Layer):
    """y = x interpolated to another size; the corner pixels of both are the same points.

    x (N x C x H x W), of which `pad_beg` and `pad_end`, 0 or less, cut off borders; y (N x C x h x w).
    `shrink_factor` s gives h = (H - 1) / s + 1, `zoom_factor` z then h = (h - 1) z + 1; without them h and w are
    `height` and `width`. Of DeepLab and PSPNet.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.interp_param
        self.scaled = param.HasField("shrink_factor") or param.HasField("zoom_factor")
        if not self.scaled and not (param.HasField("height") and param.HasField("width")):
            raise self.error("interp_param needs zoom_factor, shrink_factor, or height and width")
        if min(param.shrink_factor, param.zoom_factor) < 1:
            raise self.error("interp_param has a shrink_factor or zoom_factor below 1; give 1 or more")
        if max(param.pad_beg, param.pad_end) > 0:
            raise self.error("interp_param has pad_beg or pad_end above 0; they can only cut off: give 0 or less")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        param, shape = self.param.interp_param, bottom[0].shape
        if len(shape) != 4:
            raise self.shape_error(f"needs a bottom with 4 axes (N x C x H x W), got shape {shape}")
        inside = [size + param.pad_beg + param.pad_end for size in shape[2:]]
        wanted = [self._scaled(size) for size in inside] if self.scaled else [param.height, param.width]
        if min(*inside, *wanted) < 1:
            raise self.shape_error(f"nothing is left of a bottom of shape {shape}; {inside} become {wanted}")
        # y = rows x columns^T, with a row of two weights for each pixel of y.
        self.rows, self.columns = (
            self.xp.asarray(_weights(size, -param.pad_beg, part, want))
            for size, part, want in zip(shape[2:], inside, wanted, strict=True)
        )
        top[0].reshape(*shape[:2], *wanted)

    def _scaled(self, size: int) -> int:
        param = self.param.interp_param
        return ((size - 1) // param.shrink_factor) * param.zoom_factor + 1

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = bottom[0].array, top[0].array
        rows, columns = self.rows.astype(x.dtype), self.columns.astype(x.dtype)
        between = self.xp.matmul(rows, x)  # rows first: what is left is one large product, written where it belongs
        self.xp.matmul(between.reshape(-1, x.shape[3]), columns.T, out=y.reshape(-1, y.shape[3]))

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            dy, dx = top[0].diff_array, bottom[0].diff_array
            rows, columns = self.rows.astype(dy.dtype), self.columns.astype(dy.dtype)
            between = self.xp.matmul(dy.reshape(-1, dy.shape[3]), columns).reshape(*dy.shape[:3], -1)
            self.xp.matmul(rows.T, between, out=dx)


def _weights(size: int, first: int, part: int, wanted: int) -> np.ndarray:
    """Return the weights (wanted x size) of the pixels of an axis, of which `part` from `first` on are read."""
    ratio = np.float32((part - 1) / (wanted - 1)) if wanted > 1 and wanted != part else np.float32(wanted == part)
    places = np.arange(wanted, dtype=np.float32) * ratio
    low = np.minimum(places.astype(int), part - 1)
    weights, each = np.zeros((wanted, size)), np.arange(wanted)
    weights[each, first + low] = 1 - (places - low)
    weights[each, first + np.minimum(low + 1, part - 1)] += places - low
    return weights


register("Interp", Interp)
