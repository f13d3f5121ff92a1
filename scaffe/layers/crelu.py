"""CReLU: the rectified values beside the rectified negated values."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, Layer, register


class CReLU(Layer):
    """y = max(x, 0) in the first C channels, max(-x, 0) in the others; x (N x C x ...), y (N x 2C x ...).

    Shang et al. 2016, definition 2.1.
    """

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        if len(shape) < 2:
            raise self.shape_error(f"needs a bottom with channels on axis 1, got shape {shape}")
        top[0].reshape(shape[0], 2 * shape[1], *shape[2:])

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x, y, channels = bottom[0].array, top[0].array, bottom[0].shape[1]
        self.xp.maximum(x, 0, out=y[:, :channels])
        self.xp.maximum(-x, 0, out=y[:, channels:])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            x, dy, channels = bottom[0].array, top[0].diff_array, bottom[0].shape[1]
            bottom[0].diff_array[...] = dy[:, :channels] * (x > 0) - dy[:, channels:] * (x < 0)


register("CReLU", CReLU)
