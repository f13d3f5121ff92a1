"""ImagesNet: a net whose first input is images, prepared by a Transformer; what Classifier and Detector share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from scaffe.context import TEST
from scaffe.errors import ShapeError
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.pictures import io
from scaffe.pictures.input_transform import warning
from scaffe.proto import InputTransform, TransformationParameter

PIXELS = 255.0  # the largest value of a pixel in a database


class ImagesNet(Net):
    """Prepare images for a deploy net whose first input is images (N x K x H x W), and run it on them.

    `preparation` has values for the `transformer`, by the names of its setters; None leaves a step out. `options` are
    Net's. `input` is the first input's name. Raise ShapeError if that is not images.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        preparation: Mapping[str, Any],
        **options: Any,
    ):
        super().__init__(model_file, TEST, weights=os.fspath(pretrained_file), **options)
        self.input = self._image_input()
        self._file, self._is_told = os.fspath(pretrained_file), False
        self.transformer = io.Transformer({self.input: self.blobs[self.input].shape})
        self.transformer.set_transpose(self.input, (2, 0, 1))
        for name, value in preparation.items():
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

    def check_channels(self, image: np.ndarray) -> None:
        """Raise ShapeError unless an image is (H x W x K) with as many channels as the input."""
        channels = self.blobs[self.input].shape[1]
        shape = np.shape(image)
        if len(shape) == 3 and shape[2] == channels:
            return
        advice = {(1, 3): "; read it with color=False, on the command line with --gray"}
        advice[3, 1] = "; read it with color=True, on the command line without --gray"
        more = advice.get((channels, shape[-1]), "") if len(shape) == 3 else ""
        raise ShapeError(f"net '{self.name}' takes images (H x W x {channels}), got shape {shape}{more}")

    def batches(self, crops: Iterable[np.ndarray]) -> Iterator[list[np.ndarray]]:
        """Iterate over crops in batches of the net's own size; the last can have fewer."""
        crops, size = iter(crops), self.blobs[self.input].num
        while batch := list(islice(crops, size)):
            yield batch

    def scores(self, crops: Sequence[np.ndarray], net: Net | None = None) -> np.ndarray:
        """Return the first output (M x ...) for a batch of crops, of this net or of another of the same model."""
        net = net or self
        self._tell_difference()
        target = net.blobs[self.input].data
        target[len(crops) :] = 0
        for row, crop in zip(target, crops, strict=False):
            row[...] = self.transformer.preprocess(self.input, crop)
        return net.forward()[self.outputs[0]][: len(crops)].copy()

    def _tell_difference(self) -> None:
        """Warn, once, where images are prepared otherwise than those that the weights were trained with."""
        if not self._is_told and (text := warning(self.trained, self._here())):
            log.warning("%s: %s", self._file, text)
        self._is_told = True

    def _here(self) -> InputTransform:
        """Return how the transformer prepares images of pixels from 0 to 255."""
        steps, name = self.transformer, self.input
        raw = steps.raw_scale.get(name, 1.0) / PIXELS
        mean = steps.mean.get(name, np.zeros((1, 1, 1), np.float32)).mean((1, 2), dtype=np.float64) / raw
        scale = steps.input_scale.get(name, 1.0) * raw
        return InputTransform(transform_param=TransformationParameter(scale=scale), mean=mean)
