"""Im2col: the columns of a convolution, as a layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from scaffe.layers.im2col import Columns, images_last
from scaffe.layers.layer import Blobs, register
from scaffe.layers.windowed import Windowed


class Im2col(Windowed):
    """Unfold x: y holds, for each window position, the values of x in the window, 0 in the padding.

    x (N x C x size...), channels on `axis`; y (N x C kernel... x out...). The fields are those of convolution_param.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.read_window(len(bottom[0].shape) - self._axis(bottom) - 1)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        axis, shape = self._axis(bottom), bottom[0].shape
        window = self.window = self.window_over(shape, axis)
        self.view = prod(shape[:axis]), *shape[axis:]
        channels = shape[axis] * prod(window.kernel)
        top[0].reshape(*shape[:axis], channels, *window.out)
        self._columns: Columns | None = None

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y = bottom[0].array.reshape(self.view), top[0].array.reshape(self.view[0], -1)
        images_last(y)[...] = self._columns_for(x).unfold(x).reshape(-1, len(x))

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            dx, dy = bottom[0].diff_array.reshape(self.view), top[0].diff_array.reshape(self.view[0], -1)
            columns = self._columns_for(dx)
            columns.matrix.reshape(-1, len(dx))[...] = images_last(dy)
            columns.fold(dx)

    def _columns_for(self, images: Any) -> Columns:
        if self._columns is None:
            self._columns = Columns(self.xp, images.dtype, self.view[0], self.view[1], self.window)
        return self._columns


register("Im2col", Im2col)
