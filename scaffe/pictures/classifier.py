"""Classifier: a net that classifies images, as in pycaffe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import CallError, ShapeError
from scaffe.pictures import io
from scaffe.pictures.images_net import ImagesNet


class Classifier(ImagesNet):
    """Classify images with a deploy net whose first input is images (N x K x H x W).

    Images are resized to `image_dims` (H, W; by default the input's size), cropped to the input's size, and
    preprocessed by io.Transformer. `options` are Net's. Raise ShapeError if the net's first input is not images.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        image_dims: Sequence[int] | None = None,
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        **options: Any,
    ):
        preparation = dict(mean=mean, input_scale=input_scale, raw_scale=raw_scale, channel_swap=channel_swap)
        super().__init__(model_file, pretrained_file, preparation, **options)
        size = self.blobs[self.input].shape[2:]
        self.crop_dims, self.image_dims = np.array(size), tuple(image_dims or size)
        if any(image < crop for image, crop in zip(self.image_dims, size, strict=True)):
            raise ShapeError(f"images of {self.image_dims} are smaller than the net's input of {size}")

    def predict(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """Return the net's output (N x outputs) for N images (H x W x K).

        With `oversample` the output is the mean over ten crops, else that of the center crop. Raise ShapeError for
        other arrays, CallError without images.
        """
        if not len(inputs):
            raise CallError("predict takes a list of images, got none")
        crops = (crop for image in inputs for crop in self.crops([image], oversample))
        return self.means([self.scores(batch) for batch in self.batches(crops)], len(inputs))

    # The steps of predict.

    def crops(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """Return the crops (M x H x W x K) of images, of each image in turn. Raise ShapeError for other arrays."""
        for image in inputs:
            self.check_channels(image)
        images = [io.resize_image(image, self.image_dims) for image in inputs]
        return io.oversample(images, self.crop_dims) if oversample else self._middle(np.array(images))

    def _middle(self, images: np.ndarray) -> np.ndarray:
        sizes = zip(self.image_dims, self.crop_dims, strict=True)
        top, left = (int(image / 2 - crop / 2) for image, crop in sizes)
        return images[:, top : top + self.crop_dims[0], left : left + self.crop_dims[1]]

    def means(self, scores: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Return the mean over the crops of each of `count` images (count x outputs); `scores` are of all batches."""
        found: np.ndarray = np.concatenate(scores)
        means: np.ndarray = found.reshape(count, len(found) // count, -1).mean(1)
        return means
