"""Images and blobs between files, arrays and nets: pycaffe's caffe.io.

Arrays of images are (H x W x K), float32, as pycaffe has them: R G B from 0 to 1. Where pycaffe leaves decoding and
interpolation to scikit-image, this takes the readers', which are OpenCV's: an image comes out as training saw it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

import readers
from readers import RecordError, decode_image
from scaffe.errors import ScaffeError, ShapeError
from scaffe.proto import BlobProto, Datum, blobs

MIRRORS = 2
PLACES = 5  # corners and centre


def load_image(filename: str | os.PathLike[str], color: bool = True) -> np.ndarray:
    """Return an image file's pixels (H x W x 3), R G B, or with `color` False (H x W x 1), float32 from 0 to 1.

    Raise ScaffeError naming the file that is missing or no image.
    """
    try:
        with open(filename, "rb") as file:
            pixels = decode_image(file.read(), color)
    except OSError as error:
        raise ScaffeError(f"image {filename}: {(error.strerror or str(error)).lower()}") from None
    except RecordError as error:
        raise ScaffeError(f"image {filename} {error}") from None
    return np.ascontiguousarray(pixels[::-1].transpose(1, 2, 0), np.float32) / np.float32(255)


def resize_image(im: np.ndarray, new_dims: Sequence[int], interp_order: int = 1) -> np.ndarray:
    """Return an image (H x W x K) resized to (new_dims x K), float32, bilinearly.

    Pixels beyond the edge count as the edge's (pycaffe's scikit-image mixes in black there).
    """
    if interp_order != 1:
        raise ScaffeError(f"resize_image interpolates bilinearly (interp_order 1), got {interp_order}")
    height, width = new_dims
    resized = readers.resize(im.transpose(2, 0, 1).astype(np.float32), int(height), int(width))
    return np.ascontiguousarray(resized.transpose(1, 2, 0))


def oversample(images: Sequence[np.ndarray], crop_dims: Sequence[int]) -> np.ndarray:
    """Return ten crops of each image (H x W x K): corners and centre, then their mirrors, (10 N x crop_dims x K)."""
    (height, width), (tall, wide) = images[0].shape[:2], map(int, crop_dims)
    if tall > height or wide > width:
        raise ShapeError(f"can't crop {tall} x {wide} out of images of {height} x {width}; make the images larger")
    corners = [(top, left) for top in (0, height - tall) for left in (0, width - wide)]
    corners.append((int(height / 2 - tall / 2), int(width / 2 - wide / 2)))
    crops = [[im[top : top + tall, left : left + wide] for top, left in corners] for im in images]
    plain = np.array(crops, np.float32)
    both = np.concatenate([plain, plain[:, :, :, ::-1]], axis=1)
    return both.reshape(len(images) * PLACES * MIRRORS, tall, wide, -1)


class Transformer:
    """Turn images (H x W x K) into what a net's inputs take, and back.

    `inputs` maps the inputs' names to their shapes (N x K x H x W). In this order: resize to the input's size,
    transpose, swap channels, multiply by the raw scale, subtract the mean, multiply by the input scale; each but the
    first only where it was set for the input. Raise ScaffeError for an unknown input, ShapeError for what doesn't fit.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]):
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, np.ndarray] = {}
        self.input_scale: dict[str, float] = {}

    def preprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """Return an image as the input takes it, (K x H x W), float32."""
        values, dims = data.astype(np.float32), self._shape(in_)[2:]
        if values.shape[:2] != dims:
            values = resize_image(values, dims)
        if in_ in self.transpose:
            values = values.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            values = values[list(self.channel_swap[in_])]
        if in_ in self.raw_scale:
            values = values * np.float32(self.raw_scale[in_])
        if in_ in self.mean:
            values = values - self.mean[in_]
        if in_ in self.input_scale:
            values = values * np.float32(self.input_scale[in_])
        return values

    def deprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """Return the image (H x W x K) that `preprocess` makes these values of; its size stays the input's."""
        self._shape(in_)
        values = data.astype(np.float32).squeeze()
        if in_ in self.input_scale:
            values = values / np.float32(self.input_scale[in_])
        if in_ in self.mean:
            values = values + self.mean[in_]
        if in_ in self.raw_scale:
            values = values / np.float32(self.raw_scale[in_])
        if in_ in self.channel_swap:
            values = values[np.argsort(self.channel_swap[in_])]
        if in_ in self.transpose:
            values = values.transpose(np.argsort(self.transpose[in_]))
        return values

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Let the axes be reordered: (2, 0, 1) makes (K x H x W) of (H x W x K)."""
        axes = len(self._shape(in_)) - 1
        if sorted(order) != list(range(axes)):
            raise ShapeError(f"input '{in_}': transpose must name each of its {axes} axes once, got {tuple(order)}")
        self.transpose[in_] = order

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Let the channels be reordered: (2, 1, 0) makes B G R of R G B."""
        channels = self._shape(in_)[1]
        if sorted(order) != list(range(channels)):
            raise ShapeError(f"input '{in_}': a channel swap names each of its {channels} once, got {tuple(order)}")
        self.channel_swap[in_] = order

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Let the image be multiplied before the mean is subtracted: 255, where the mean is of pixels up to 255."""
        self._shape(in_)
        self.raw_scale[in_] = scale

    def set_mean(self, in_: str, mean: np.ndarray) -> None:
        """Let a mean be subtracted: a number for each channel, (H x W), or (K x H x W), resized to the input's size."""
        shape, mean = self._shape(in_), np.asarray(mean, np.float32)
        if mean.ndim == 1:
            mean = mean[:, None, None]
        elif mean.ndim == 2:
            mean = mean[None]
        if mean.ndim != 3 or mean.shape[0] not in (1, shape[1]):
            raise ShapeError(f"input '{in_}' has shape {shape}: a mean of shape {mean.shape} doesn't fit its channels")
        if mean.shape[1:] not in ((1, 1), shape[2:]):
            mean = resize_image(mean.transpose(1, 2, 0), shape[2:]).transpose(2, 0, 1)
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Let the values be multiplied after the mean was subtracted, as transform_param's scale."""
        self._shape(in_)
        self.input_scale[in_] = scale

    def _shape(self, in_: str) -> tuple[int, ...]:
        if in_ not in self.inputs:
            raise ScaffeError(f"'{in_}' is no input; inputs: {' '.join(self.inputs) or 'none'}")
        return self.inputs[in_]


def blobproto_to_array(blob: BlobProto, return_diff: bool = False) -> np.ndarray:
    """Return a stored blob's values, or its gradient, in its shape, float32."""
    values = np.array(blob.diff, np.float32) if return_diff else blobs.values(blob)
    shape = readers.blob_shape(blob)
    if values.size != np.prod(shape, dtype=int):
        raise ShapeError(f"a stored blob of shape {shape} has {values.size} values")
    return values.reshape(shape)


def array_to_blobproto(arr: np.ndarray, diff: np.ndarray | None = None) -> BlobProto:
    """Return an array, and a gradient, as a BlobProto; values are stored as float32."""
    return BlobProto.FromString(blobs.encode(np.asarray(arr), diff))


def array_to_datum(arr: np.ndarray, label: int | None = None) -> Datum:
    """Return an array (C x H x W) as a Datum: uint8 as bytes, others as floats."""
    if arr.ndim != 3:
        raise ShapeError(f"a Datum takes an array (C x H x W), got shape {arr.shape}")
    channels, height, width = arr.shape
    datum = Datum(channels=channels, height=height, width=width)
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(arr.astype(np.float32).ravel().tolist())
    if label is not None:
        datum.label = label
    return datum


def datum_to_array(datum: Datum) -> np.ndarray:
    """Return a Datum's values (C x H x W): uint8 where it has bytes or a compressed image, else float32."""
    return readers.decode(datum.SerializeToString())[0]
