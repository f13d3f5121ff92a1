"""PriorBox: SSD's default boxes of the pixels of a feature map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from scaffe.blob import Shape
from scaffe.layers.layer import Blobs, Layer, register


class PriorBox(Layer):
    """List the default boxes of each pixel of bottom 0 (N x C x H x W), relative to the picture, bottom 1.

    Top (1 x 2 x 4 H W boxes): the corners of the boxes, and the variances of their codes. For each `min_size`: a square
    of this side, one of sqrt(min_size max_size), and for each other `aspect_ratio` r, with `flip` for 1 / r too, a box
    of width min_size sqrt(r) and height min_size / sqrt(r). As in SSD's Caffe, sizes are rounded down to whole numbers.
    Liu et al. 2016, section 2.2.
    """

    bottoms = (2, 2)
    bottom_names = "a feature map, the pictures"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.prior_box_param
        if not param.min_size or not all(1 <= size < np.inf for size in param.min_size):
            raise self.error(
                f"prior_box_param has min_size {list(param.min_size)}; give at least one, in pixels, from 1 on"
            )
        if param.max_size and len(param.max_size) != len(param.min_size):
            raise self.error(f"{len(param.max_size)} max_size for {len(param.min_size)} min_size; give one for each")
        if not all(least < most < np.inf for least, most in zip(param.min_size, param.max_size, strict=False)):
            raise self.error(f"max_size {list(param.max_size)} is not above min_size {list(param.min_size)}")
        for ratio in param.aspect_ratio:
            if not 0 < ratio < np.inf:
                raise self.error(f"prior_box_param has aspect_ratio {ratio:g}; give width / height, above 0")
        self.variance = list(param.variance) or [0.1]
        if len(self.variance) not in (1, 4) or not all(0 < one < np.inf for one in self.variance):
            raise self.error(f"prior_box_param has variance {self.variance}; give 1 or 4 numbers above 0")
        self.sides = np.array([*self._sides()])

    def _sides(self) -> Iterator[tuple[float, float]]:
        """Yield width and height of the boxes of a pixel."""
        param, ratios = self.param.prior_box_param, self._ratios()
        for i, size in enumerate(map(int, param.min_size)):
            yield size, size
            if param.max_size:
                both = np.sqrt(np.float32(size * int(param.max_size[i])))
                yield both, both
            yield from ((size * np.sqrt(r), size / np.sqrt(r)) for r in ratios)

    def _ratios(self) -> list[float]:
        """Return the aspect ratios other than 1, each once."""
        found = [1.0]
        for ratio in self.param.prior_box_param.aspect_ratio:
            if all(abs(ratio - other) >= 1e-6 for other in found):
                found += [ratio, 1 / ratio] if self.param.prior_box_param.flip else [ratio]
        return found[1:]

    def _pair(self, name: str) -> tuple[float, float] | None:
        """Return height and width of a field, from NAME_h and NAME_w or NAME (img_size), None where it is not given."""
        param, single = self.param.prior_box_param, "img_size" if name == "img" else name
        pair = [getattr(param, f"{name}_{axis}") for axis in "hw"]
        given = any(param.HasField(f"{name}_{axis}") for axis in "hw")
        if given and param.HasField(single):
            raise self.error(f"prior_box_param has {single} and {name}_h, {name}_w; give one of both")
        if not given and not param.HasField(single):
            return None
        height, width = pair if given else [getattr(param, single)] * 2
        if min(height, width) <= 0:
            raise self.error(f"prior_box_param has {single} {height:g} x {width:g}; give sizes above 0")
        return height, width

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        for blob in bottom:
            if len(blob.shape) != 4:
                raise self.shape_error(f"needs bottoms with 4 axes (N x C x H x W), got shape {blob.shape}")
        self.boxes = self._boxes(bottom[0].shape, bottom[1].shape)
        top[0].reshape(1, 2, self.boxes.size)

    def _boxes(self, features: Shape, picture: Shape) -> np.ndarray:
        """Return the corners (H x W x boxes x 4)."""
        sizes = self._pair("img") or picture[2:]
        steps = self._pair("step") or [size / count for size, count in zip(sizes, features[2:], strict=True)]
        offset = self.param.prior_box_param.offset
        y, x = ((np.arange(count) + offset) * step for count, step in zip(features[2:], steps, strict=True))
        centres = np.stack(np.broadcast_arrays(x[None, :], y[:, None]), -1)[:, :, None]
        corners = np.concatenate([centres - self.sides / 2, centres + self.sides / 2], -1)
        boxes: np.ndarray = corners / np.tile(sizes[::-1], 2)
        return boxes.clip(0, 1) if self.param.prior_box_param.clip else boxes

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        both = np.empty((2, self.boxes.size), np.float32)
        both[0] = self.boxes.reshape(-1)
        both[1] = np.resize(self.variance, self.boxes.size)
        top[0].array[...] = self.xp.asarray(both)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for blob, down in zip(bottom, propagate_down, strict=True):
            if down:
                blob.diff_array[...] = 0  # only its shape counts


register("PriorBox", PriorBox)
