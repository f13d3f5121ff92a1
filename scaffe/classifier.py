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
        channels = self.blobs[self.input].shape[1]
        for image in inputs:
            if image.ndim != 3 or image.shape[2] != channels:
                raise ShapeError(f"net '{self.name}' takes images (H x W x {channels}), got shape {image.shape}")
        images = [io.resize_image(image, self.image_dims) for image in inputs]
        crops = io.oversample(images, self.crop_dims) if oversample else self._middle(np.array(images))
        outputs = self._outputs(np.array([self.transformer.preprocess(self.input, crop) for crop in crops]))
        means: np.ndarray = outputs.reshape(len(inputs), len(crops) // len(inputs), -1).mean(1)
        return means

    def _middle(self, images: np.ndarray) -> np.ndarray:
        sizes = zip(self.image_dims, self.crop_dims, strict=True)
        top, left = (int(image / 2 - crop / 2) for image, crop in sizes)
        return images[:, top : top + self.crop_dims[0], left : left + self.crop_dims[1]]

    def _outputs(self, values: np.ndarray) -> np.ndarray:
        """Return the net's first output for any number of inputs, in batches of the net's own size."""
        target, found = self.blobs[self.input], []
        for start in range(0, len(values), target.num):
            part = values[start : start + target.num]
            target.data[...] = 0
            target.data[: len(part)] = part
            found.append(self.forward()[self.outputs[0]][: len(part)].copy())
        return np.concatenate(found)
