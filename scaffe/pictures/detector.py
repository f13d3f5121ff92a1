"""Detector: a net that classifies windows of images, as in pycaffe; for R-CNN's way of detection."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from scaffe.errors import ScaffeError, ShapeError
from scaffe.pictures import io
from scaffe.pictures.images_net import ImagesNet

PROPOSER = "selective_search_ijcv_with_python"


class Detector(ImagesNet):
    """Classify windows of images with a deploy net whose first input is images (N x K x H x W).

    A window is (ymin, xmin, ymax, xmax) in pixels, without ymax and xmax themselves. It is warped to the input's size.
    With `context_pad` a border of as many pixels of the input shows the window's surroundings, and the mean where
    these lie outside the image. Preparation and `options` are as in Classifier.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
        **options: Any,
    ):
        preparation = dict(mean=mean, input_scale=input_scale, raw_scale=raw_scale, channel_swap=channel_swap)
        super().__init__(model_file, pretrained_file, preparation, **options)
        self.configure_crop(context_pad)

    def configure_crop(self, context_pad: int | None) -> None:
        """Set the context of windows: pixels of the input on each side, None or 0 for none.

        `crop_dims` is then the size of a crop (H, W, K), `crop_mean` the colour where an image ends, in its own scale.
        """
        height, width = self.blobs[self.input].shape[2:]
        if not 0 <= (context_pad or 0) < min(height, width) / 2:
            raise ShapeError(f"context_pad {context_pad}: expected 0 or more, and less than half of {height} x {width}")
        steps, name = self.transformer, self.input
        self.crop_dims = np.array(self.blobs[name].shape[1:])[np.argsort(steps.transpose[name])]
        self.context_pad = context_pad
        mean = steps.mean.get(name, np.zeros(self.blobs[name].shape[1:], np.float32))
        if name in steps.channel_swap:
            mean = np.broadcast_to(mean, (self.blobs[name].shape[1], *mean.shape[1:]))
            mean = mean[np.argsort(steps.channel_swap[name])]
        self.crop_mean = mean.transpose(np.argsort(steps.transpose[name])) / np.float32(steps.raw_scale.get(name, 1))

    def detect_windows(
        self, images_windows: Iterable[tuple[str | os.PathLike[str], Sequence[Any]]]
    ) -> list[dict[str, Any]]:
        """Return for each window of each image a dict of its `filename`, `window` and `prediction`.

        `images_windows` has pairs of an image file's name and its windows. The prediction is the net's first output.
        Raise ScaffeError for a file that is no image, ShapeError for a window without pixels.
        """
        pairs = [(filename, list(windows)) for filename, windows in images_windows]
        scores = [self.scores(batch) for batch in self.batches(self._crops(pairs))]
        windows = ((filename, window) for filename, windows in pairs for window in windows)
        return [
            {"window": window, "prediction": prediction, "filename": filename}
            for (filename, window), prediction in zip(windows, (row for rows in scores for row in rows), strict=True)
        ]

    def _crops(self, pairs: Iterable[tuple[str | os.PathLike[str], list[Any]]]) -> Iterator[np.ndarray]:
        """Iterate over the crops of all windows; one image is in memory at a time."""
        color = self.blobs[self.input].shape[1] != 1
        for filename, windows in pairs:
            image = io.load_image(filename, color)
            self.check_channels(image)
            for window in windows:
                try:
                    yield self.crop(image, window)
                except ShapeError as error:
                    raise ShapeError(f"image {filename}: {error}") from None

    def detect_selective_search(self, image_fnames: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
        """Return the detections in the windows that selective search proposes for image files.

        The module selective_search_ijcv_with_python, which needs MATLAB, proposes them. Raise ScaffeError without it.
        """
        try:
            selective_search = import_module(PROPOSER)
        except ImportError:
            raise ScaffeError(
                f"selective search needs the module {PROPOSER}, and MATLAB; "
                "or give the windows to detect_windows, on the command line with --crop-mode list"
            ) from None
        names = [os.path.abspath(name) for name in image_fnames]
        windows = selective_search.get_windows(names, cmd="selective_search_rcnn")
        return self.detect_windows(zip(names, windows, strict=True))

    def crop(self, im: np.ndarray, window: Sequence[Any]) -> np.ndarray:
        """Return a window of an image (H x W x K): with context of the size `crop_dims`, else of its own size.

        Raise ShapeError for a window without a pixel of the image.
        """
        (ymin, xmin, ymax, xmax), size = (int(edge) for edge in window), im.shape[:2]
        missing = ShapeError(f"window {(ymin, xmin, ymax, xmax)} has no pixels in an image of {size}")
        if max(ymin, 0) >= min(ymax, size[0]) or max(xmin, 0) >= min(xmax, size[1]):
            raise missing
        if not self.context_pad:
            return im[max(ymin, 0) : ymax, max(xmin, 0) : xmax]
        rows, to_rows = _context(ymin, ymax, size[0], int(self.crop_dims[0]), self.context_pad)
        columns, to_columns = _context(xmin, xmax, size[1], int(self.crop_dims[1]), self.context_pad)
        crop = np.ones(self.crop_dims, np.float32) * self.crop_mean
        place = crop[to_rows, to_columns]
        if not place.size:
            raise missing
        place[...] = io.resize_image(im[rows, columns], place.shape[:2])
        return crop


def _context(first: int, last: int, length: int, size: int, pad: int) -> tuple[slice, slice]:
    """Return the pixels of one axis that a window with its context has in an image, and their place in the crop.

    The crop has `size` pixels, of which `pad` on each side show the context. As in pycaffe the window's last pixel
    counts once more, and the context's does not.
    """
    half = (last - first + 1) / 2
    reach = size / (size - 2 * pad) * half
    low, high = round(first + half - reach), round(first + half + reach)
    share = size / (high - low + 1)
    start = round(max(0, -low) * share)
    low, high = max(low, 0), min(high, length)
    count = min(round((high - low + 1) * share), size - start)
    return slice(low, high), slice(start, start + count)
