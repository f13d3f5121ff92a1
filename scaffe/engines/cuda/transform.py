"""Images transformed on the device: mean, scale, crop and mirror by one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from readers import Transform
from scaffe.engines.cuda.launcher import THREADS, Launcher

NONE = np.uint64(0)  # an array that a kernel is not given
PLANES = 65535  # at most in a launch's second dimension; blocks then take several


class ImageTransform:
    """What a readers.Transform does to images, on the device; the host's bits, but for denormal numbers."""

    def __init__(self, engine: Launcher, transform: Transform):
        self.engine, self.scale = engine, float(transform.scale)
        self._mean: Any = NONE if transform.mean is None else self._array(transform.mean)
        self._values = transform.mean_values
        self._means: Any = NONE  # of each channel

    def __call__(self, images: Any, places: Any, out: Any) -> None:
        """Have what becomes of images (n x C x H x W, uint8 or float32) written to `out` (n x C x h x w).

        `places` (n x 3, int32) are Transform.places of each image. This only puts the work on the current stream.
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
