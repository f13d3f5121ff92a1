"""Images transformed on the device: mean, scale, crop and mirror by one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from readers import Transform
from scaffe.engines.cuda.launcher import THREADS, Launcher

NONE = np.uint64(0)  # a null pointer, for an array that a kernel does not get
PLANES = 65535  # the most that the second dimension of a grid can have; blocks then compute several


class ImageTransform:
    """A readers.Transform on the device. The results are the host's, bit for bit, except that denormals become 0."""

    def __init__(self, engine: Launcher, transform: Transform):
        self.engine, self.scale = engine, float(transform.scale)
        self._mean: Any = NONE if transform.mean is None else self._array(transform.mean)
        self._values = transform.mean_values
        self._means: Any = NONE  # of each channel

    def __call__(self, images: Any, places: Any, out: Any) -> None:
        """Transform images (n x C x H x W, uint8 or float32) into `out` (n x C x h x w), on the current stream.

        `places` (n x 3, int32) holds Transform.places of each image. Does not wait for the device.
        """
        n, channels, rows, columns = images.shape
        height, width = out.shape[2:]
        if self._values and self._means is NONE:
            self._means = self._array(np.full(channels, self._values))
        shapes = n * channels, channels, rows, columns, height, width
        if out.size:
            blocks = -(-height * width // THREADS), min(n * channels, PLANES)
            arrays = images, places, self._mean, self._means, out
            self.engine.launch("transform", f"transform_{images.dtype}", blocks, *arrays, *shapes, self.scale)

    def _array(self, values: np.ndarray) -> Any:
        return self.engine.gpu.xp.asarray(np.ascontiguousarray(values, np.float32))
