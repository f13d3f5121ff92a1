"""Images and blobs between files, arrays and nets: pycaffe's caffe.io.

Arrays of images are (H x W x K), float32, as in pycaffe: R G B from 0 to 1. pycaffe decodes and interpolates with
scikit-image; this module uses the readers' methods, which are OpenCV's, so that images are the same as in training.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
from google.protobuf.message import DecodeError

import readers
from readers import RecordError, decode_image
from readers.files import read_input
from scaffe.errors import FileError, ScaffeError, ShapeError
from scaffe.proto import BlobProto, BlobProtoVector, Datum, blobs
from scaffe.proto import caffe_pb2 as caffe_pb2  # programs for pycaffe use caffe.io.caffe_pb2

MIRRORS = 2
PLACES = 5  # corners and centre
SPLINES = range(2, 6)  # orders of interpolation that SciPy computes


def load_image(filename: str | os.PathLike[str], color: bool = True) -> np.ndarray:
    """Return an image file's pixels (H x W x 3), R G B, or with `color` False (H x W x 1), float32 from 0 to 1.

    Raise FileError, with the file's name, if it cannot be read or is no image.
    """
    try:
        pixels = decode_image(read_input(filename), color)
    except OSError as error:
        raise FileError(f"image {filename}: {(error.strerror or str(error)).lower()}") from None
    except RecordError as error:
        raise FileError(f"image {filename} {error}") from None
    return np.ascontiguousarray(pixels[::-1].transpose(1, 2, 0), np.float32) / np.float32(255)


def resize_image(im: np.ndarray, new_dims: Sequence[int], interp_order: int = 1) -> np.ndarray:
    """Return an image (H x W x K) resized to (new_dims x K), float32, in memory of its own.

    `interp_order` is 0 for the nearest pixel, 1 for bilinear interpolation, and 2 to 5 for splines, by SciPy. Pixels
    outside the image have the value of the edge (in pycaffe, with scikit-image, they are black).
    Raise ScaffeError for another order, or if SciPy is needed and missing.
    """
    height, width = map(int, new_dims)
    if interp_order == 0:
        rows, columns = (_nearest(*sizes) for sizes in zip(im.shape[:2], (height, width), strict=True))
        nearest: np.ndarray = im[rows[:, None], columns].astype(np.float32)
        return nearest
    if interp_order != 1:
        return _splines(im, height, width, interp_order)
    resized = readers.resize(im.transpose(2, 0, 1).astype(np.float32, copy=False), height, width)
    return np.ascontiguousarray(resized.transpose(1, 2, 0))


def _nearest(source: int, target: int) -> np.ndarray:
    """Return for each target pixel the source pixel that its centre lies in."""
    return ((np.arange(target) + 0.5) * (source / target)).astype(int).clip(0, source - 1)


def _splines(im: np.ndarray, height: int, width: int, order: int) -> np.ndarray:
    if order not in SPLINES:
        raise ScaffeError(f"resize_image: interp_order must be 0 to {SPLINES[-1]}, got {order}")
    try:
        from scipy.ndimage import zoom
    except ImportError:
        raise ScaffeError(
            f"resize_image with interp_order {order} needs SciPy: pip install 'scaffe[resize]', or use order 0 or 1"
        ) from None
    factors = height / im.shape[0], width / im.shape[1], 1
    resized: np.ndarray = zoom(im.astype(np.float32), factors, order=order, mode="nearest", grid_mode=True)
    return resized


def oversample(images: Sequence[np.ndarray], crop_dims: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return ten crops of each image (H x W x K): corners and centre, then their mirrors, (10 N x crop_dims x K)."""
    (height, width), (tall, wide) = images[0].shape[:2], map(int, crop_dims)
    if tall > height or wide > width:
        raise ShapeError(f"can't crop {tall} x {wide} out of images of {height} x {width}; make the images larger")
    corners = [(top, left) for top in (0, height - tall) for left in (0, width - wide)]
    corners.append((int(height / 2 - tall / 2), int(width / 2 - wide / 2)))
    crops = np.empty((len(images), MIRRORS, PLACES, tall, wide, images[0].shape[2]), np.float32)
    for im, (plain, mirrored) in zip(images, crops, strict=True):
        for place, (top, left) in enumerate(corners):
            plain[place] = im[top : top + tall, left : left + wide]
            mirrored[place] = plain[place, :, ::-1]
    return crops.reshape(-1, tall, wide, crops.shape[-1])


class Transformer:
    """Convert images (H x W x K) to the values of a net's inputs, and back.

    `inputs` maps the inputs' names to their shapes (N x K x H x W). The steps are: resize to the input's size,
    transpose, swap channels, multiply by the raw scale, subtract the mean, multiply by the input scale. All but the
    first apply only if set for the input. Raise ScaffeError for an unknown input, ShapeError for a wrong shape.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]):
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, np.ndarray] = {}
        self.input_scale: dict[str, float] = {}

    def preprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """Return the input's values for an image, (K x H x W), float32, in memory of their own."""
        dims = self._shape(in_)[2:]
        values = data if data.shape[:2] == dims else resize_image(data, dims)
        if in_ in self.transpose:
            values = values.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            values = values[list(self.channel_swap[in_])]
        values = values.astype(np.float32, order="C", copy=np.may_share_memory(values, data))
        if in_ in self.raw_scale:
            values *= np.float32(self.raw_scale[in_])
        if in_ in self.mean:
            fits = np.broadcast_shapes(values.shape, self.mean[in_].shape) == values.shape
            values = np.subtract(values, self.mean[in_], out=values if fits else None)
        if in_ in self.input_scale:
            values *= np.float32(self.input_scale[in_])
        return values

    def deprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """Return the image (H x W x K) of an input's values, the inverse of `preprocess` without the resize.

        Axes of size 1 before the values' own, as of a batch of one, are left out.
        """
        axes = len(self._shape(in_)) - 1
        values = data.astype(np.float32)
        values = values.squeeze(tuple(range(values.ndim - axes)))
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
        """Set the order of the axes: (2, 0, 1) converts (H x W x K) to (K x H x W)."""
        axes = len(self._shape(in_)) - 1
        if sorted(order) != list(range(axes)):
            raise ShapeError(f"input '{in_}': transpose must name each of its {axes} axes once, got {tuple(order)}")
        self.transpose[in_] = order

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of the channels: (2, 1, 0) converts R G B to B G R."""
        channels = self._shape(in_)[1]
        if sorted(order) != list(range(channels)):
            raise ShapeError(f"input '{in_}': a channel swap names each of its {channels} once, got {tuple(order)}")
        self.channel_swap[in_] = order

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Set the factor applied before the mean is subtracted: 255 for a mean of pixels from 0 to 255."""
        self._shape(in_)
        self.raw_scale[in_] = scale

    def set_mean(self, in_: str, mean: np.ndarray) -> None:
        """Set the mean to subtract: (K), (H x W) or (K x H x W); the last two are resized to the input's size."""
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
        """Set the factor applied after the mean is subtracted, as transform_param's scale."""
        self._shape(in_)
        self.input_scale[in_] = scale

    def _shape(self, in_: str) -> tuple[int, ...]:
        if in_ not in self.inputs:
            raise ScaffeError(f"'{in_}' is no input; inputs: {' '.join(self.inputs) or 'none'}")
        return self.inputs[in_]


def blobproto_to_array(blob: BlobProto, return_diff: bool = False) -> np.ndarray:
    """Return a stored blob's values, or its gradient, float32, in the blob's shape.

    The shape is (num, channels, height, width) if one of these is set, else `shape`; without either it is (), of a
    scalar. Raise ShapeError if the number of values differs.
    """
    values = np.array(blob.diff, np.float32) if return_diff else blobs.values(blob)
    shape = readers.blob_shape(blob)
    if values.size != np.prod(shape, dtype=int):
        stored = f"of shape {shape}" if shape else "without a shape, a scalar,"
        raise ShapeError(f"a stored blob {stored} has {values.size} values")
    return values.reshape(shape)


def arraylist_to_blobprotovector_str(arraylist: Sequence[np.ndarray]) -> bytes:
    """Return arrays as a serialised BlobProtoVector, each stored as float32."""
    number = BlobProtoVector.BLOBS_FIELD_NUMBER
    return b"".join(blobs.field(number, blobs.encode(np.asarray(arr))) for arr in arraylist)


def blobprotovector_str_to_arraylist(str: bytes) -> list[np.ndarray]:
    """Return the arrays of a serialised BlobProtoVector, float32. Raise ShapeError if it is none."""
    try:
        vector = BlobProtoVector.FromString(str)
    except DecodeError:
        raise ShapeError(f"{len(str)} bytes are not a serialised BlobProtoVector") from None
    return [blobproto_to_array(blob) for blob in vector.blobs]


def array_to_blobproto(arr: np.ndarray, diff: np.ndarray | None = None) -> BlobProto:
    """Return a BlobProto with an array and optionally its gradient, stored as float32."""
    return BlobProto.FromString(blobs.encode(np.asarray(arr), diff))


def array_to_datum(arr: np.ndarray, label: int | None = None) -> Datum:
    """Return an array (C x H x W) as a Datum: uint8 as bytes, other types as floats."""
    if arr.ndim != 3:
        raise ShapeError(f"a Datum needs an array (C x H x W), got shape {arr.shape}")
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
    """Return a Datum's values (C x H x W): uint8 for bytes or a compressed image, else float32.

    Raise ShapeError if they do not fill its shape, or are no image.
    """
    try:
        return readers.decode(datum.SerializeToString())[0]
    except RecordError as error:
        raise ShapeError(f"a Datum: {error}") from None
