"""Conversions between Caffe's Datum and BlobProto messages and arrays."""

from __future__ import annotations

import math
import os

import numpy as np
from google.protobuf.message import DecodeError

from readers.datum_pb2 import BlobProto, Datum
from readers.errors import RecordError, SourceError, reason
from readers.files import read_input, replace_file
from readers.image import decode_image


def decode(value: bytes, color: bool | None = None) -> tuple[np.ndarray, int]:
    """Return the image (C x H x W) and the label of a serialized Datum.

    Raw and encoded images are uint8, channels B G R; `float_data` is float32. An encoded image is decoded to 3 channels
    where `color` is True, to 1 where it is False, to the file's own where it is None; other Datums ignore it, as in
    Caffe. The image may be read-only. Raises RecordError for a damaged record.
    """
    try:
        datum = Datum.FromString(value)
    except DecodeError:
        raise RecordError(f"{len(value)} bytes that are not a Datum") from None
    if datum.encoded:
        return decode_image(datum.data, color), datum.label
    return _raw_image(datum), datum.label


def encode(image: np.ndarray | bytes, label: int) -> bytes:
    """Return the serialized Datum of an image, byte for byte as Caffe's convert_imageset writes it.

    `image` is uint8 (C x H x W), floating point (C x H x W, stored as `float_data`), or the bytes of an image file.
    Raises RecordError for an array of another type or number of axes.
    """
    if isinstance(image, bytes):
        return Datum(data=image, label=label, encoded=True).SerializeToString()
    if image.ndim != 3 or image.dtype.kind not in "uf" or (image.dtype.kind == "u" and image.dtype != np.uint8):
        raise RecordError(f"expected uint8 or floating point (C x H x W), got {image.dtype} {shape_text(image.shape)}")
    channels, height, width = image.shape
    datum = Datum(channels=channels, height=height, width=width, label=label, encoded=False)
    if image.dtype == np.uint8:
        datum.data = image.tobytes()
    else:
        datum.float_data.extend(image.ravel().tolist())
    return datum.SerializeToString()


def blob_shape(blob: BlobProto) -> tuple[int, ...]:
    """Return a BlobProto's shape, from num, channels, height and width if it has one of these, else from `shape`.

    A blob with none of them is a scalar, of shape (), as Caffe writes it.
    """
    if has_old_shape(blob):
        return (blob.num, blob.channels, blob.height, blob.width)
    return tuple(blob.shape.dim)


def has_old_shape(blob: BlobProto) -> bool:
    """Return whether a BlobProto has a field of the format before `shape`, which takes precedence."""
    return any(blob.HasField(field) for field in ("num", "channels", "height", "width"))


def read_mean(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the mean image (C x H x W, float32) of a .binaryproto file. Raises SourceError where there is none."""
    try:
        blob = BlobProto.FromString(read_input(path))
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise SourceError(f"mean file {path}: {reason(error)}") from None
    except DecodeError:
        raise SourceError(f"mean file {path}: not a .binaryproto") from None
    shape = blob_shape(blob)
    values = np.array(blob.double_data or blob.data, np.float32)
    image = shape[-3:]
    if len(image) != 3 or values.size == 0 or math.prod(shape) != math.prod(image) or values.size != math.prod(image):
        raise SourceError(
            f"mean file {path}: expected one image (C x H x W), got shape {shape_text(shape)} with {values.size} values"
        )
    return values.reshape(image)


def write_mean(path: str | os.PathLike[str], mean: np.ndarray) -> None:
    """Write a mean image (C x H x W) as a .binaryproto, atomically. Raises SourceError if it can't be written."""
    channels, height, width = mean.shape
    blob = BlobProto(num=1, channels=channels, height=height, width=width)
    blob.data.extend(mean.astype(np.float32).ravel().tolist())
    try:
        replace_file(path, blob.SerializeToString())
    except OSError as error:
        raise SourceError(f"{path}: can't be written: {reason(error)}") from None


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape for messages: 3 x 32 x 32."""
    return " x ".join(map(str, shape)) or "scalar"


def _raw_image(datum: Datum) -> np.ndarray:
    """Return the array of a Datum that is not encoded."""
    shape = (datum.channels, datum.height, datum.width)
    values = np.frombuffer(datum.data, np.uint8) if datum.data else np.array(datum.float_data, np.float32)
    if min(shape) <= 0:
        raise RecordError(f"expected an image, got the shape {shape_text(shape)}")
    if values.size != math.prod(shape):
        raise RecordError(f"expected {math.prod(shape)} values for {shape_text(shape)}, got {values.size}")
    return values.reshape(shape)
