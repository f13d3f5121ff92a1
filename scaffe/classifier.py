"""Classifier: a net that classifies images, as in pycaffe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe import io
from scaffe.context import TEST
from scaffe.errors import ShapeError
from scaffe.net import Net


class Classifier(Net):
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
        super().__init__(model_file, TEST, weights=os.fspath(pretrained_file), **options)
        self.input = self._image_input()
        shape = self.blobs[self.input].shape
        self.crop_dims = shape[2:]
        self.image_dims = tuple(image_dims or self.crop_dims)
        if any(image < crop for image, crop in zip(self.image_dims, self.crop_dims, strict=True)):
            raise ShapeError(f"images of {self.image_dims} are smaller than the net's input of {self.crop_dims}")
        self.transformer = io.Transformer({self.input: shape})
        self.transformer.set_transpose(self.input, (2, 0, 1))
        for name, value in (
            ("mean", mean),
            ("input_scale", input_scale),
            ("raw_scale", raw_scale),
            ("channel_swap", channel_swap),
        ):
            if value is not None:
                getattr(self.transformer, f"set_{name}")(self.input, value)

    def _image_input(self) -> str:
        if not self.inputs or len(self.blobs[self.inputs[0]].shape) != 4:
            shown = ", ".join(f"{name} {self.blobs[name].shape}" for name in self.inputs) or "none"
            raise ShapeError(
                f"net '{self.name}': needs an input for images (N x K x H x W), as deploy nets have; "
                f"its inputs: {shown}"
            )
        return self.inputs[0]

    def predict(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """Return the net's output (N x outputs) for N images (H x W x K).

        With `oversample` the output is the mean over ten crops, else that of the center crop.
        """
        batches = self.batches(self.crops(inputs, oversample))
        return self.means([self.scores(batch) for batch in batches], len(inputs))

    # The steps of predict.

    def crops(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """Return the crops (M x H x W x K) of images, of each image in turn. Raise ShapeError for other arrays."""
        channels = self.blobs[self.input].shape[1]
        for image in inputs:
            if image.ndim != 3 or image.shape[2] != channels:
                raise ShapeError(f"net '{self.name}' takes images (H x W x {channels}), got shape {image.shape}")
        images = [io.resize_image(image, self.image_dims) for image in inputs]
        return io.oversample(images, self.crop_dims) if oversample else self._middle(np.array(images))

    def _middle(self, images: np.ndarray) -> np.ndarray:
        sizes = zip(self.image_dims, self.crop_dims, strict=True)
        top, left = (int(image / 2 - crop / 2) for image, crop in sizes)
        return images[:, top : top + self.crop_dims[0], left : left + self.crop_dims[1]]

    def batches(self, crops: np.ndarray) -> list[np.ndarray]:
        """Return the crops in batches of the net's own size; the last can have fewer."""
        size = self.blobs[self.input].num
        return [crops[start : start + size] for start in range(0, len(crops), size)]

    def scores(self, crops: np.ndarray, net: Net | None = None) -> np.ndarray:
        """Return the first output (M x ...) for a batch of crops, of this net or of another of the same model."""
        net = net or self
        target = net.blobs[self.input].data
        target[...] = 0
        for row, crop in zip(target, crops, strict=False):
            row[...] = self.transformer.preprocess(self.input, crop)
        return net.forward()[self.outputs[0]][: len(crops)].copy()

    def means(self, scores: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Return the mean over the crops of each of `count` images (count x outputs); `scores` are of all batches."""
        found: np.ndarray = np.concatenate(scores)
        means: np.ndarray = found.reshape(count, len(found) // count, -1).mean(1)
        return means
