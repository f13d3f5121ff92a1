"""Image files decoded to arrays (C x H x W, uint8, B G R) and resized, with the arithmetic of OpenCV, as in Caffe."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from readers.arrow import pixels_of
from readers.errors import RecordError, reason
from readers.jpeg import decode_jpeg

if TYPE_CHECKING:
    from PIL import Image

GREY_WEIGHTS = (9797, 19234, 3737)  # libpng's 15-bit weights of R, G, B: OpenCV reads a PNG as grey with them
RESIZE_BITS = 11  # OpenCV's fixed-point weights for bilinear interpolation
GREY_MODES = ("1", "L", "I;16", "I;16B", "I;16L", "I")


def decode_image(content: bytes, color: bool | None = None) -> np.ndarray:
    """Decode an image file's content to uint8 (C x H x W), channels B G R (A). The array may be read-only.

    `color` True gives 3 channels, False gives 1, None those of the file: 1, 3, or 4 with transparency.
    Raises RecordError for content that is no image or is damaged.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        if color is not False and (pixels := decode_jpeg(content)) is not None:
            return pixels.transpose(2, 0, 1)[2::-1]
        with Image.open(io.BytesIO(content)) as image:
            return _pixels(image, color)
    except UnidentifiedImageError:
        raise RecordError("can't be decoded as an image (unknown format)") from None
    except Exception as error:  # damaged content makes Pillow's decoders raise exceptions of many kinds
        raise RecordError(f"can't be decoded as an image ({reason(error)})") from None


def resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize (C x H x W) bilinearly to (C x height x width), of the same type, as cv::resize with INTER_LINEAR.

    uint8 results equal OpenCV's bit for bit; floating point results are not rounded to integers.
    """
    source_height, source_width = image.shape[1:]
    if (source_height, source_width) == (height, width):
        return image.copy()
    if image.dtype != np.uint8:
        return _resize_floats(image, height, width)
    if (source_height, source_width) == (2 * height, 2 * width):
        return _halve(image)
    left, right, left_weight, right_weight = _interpolation(source_width, width, clamped=True)
    above, below, above_weight, below_weight = _interpolation(source_height, height, clamped=False)
    rows = _weighted(image, left, 2, left_weight)
    rows += _weighted(image, right, 2, right_weight)
    rows >>= 4
    pixels = _weighted(rows, above, 1, above_weight[:, None]) >> 16
    pixels += _weighted(rows, below, 1, below_weight[:, None]) >> 16
    pixels += 2
    pixels >>= 2
    return pixels.astype(np.uint8)


def _weighted(image: np.ndarray, places: np.ndarray, axis: int, weights: np.ndarray) -> np.ndarray:
    """Return the elements at `places` of an axis, times weights, as int32; only these elements are converted."""
    taken = image.take(places, axis).astype(np.int32, copy=False)
    taken *= weights
    return taken


def _pixels(image: Image.Image, color: bool | None) -> np.ndarray:
    """Return an opened image's pixels (C x H x W), with the channels that `color` selects."""
    if color is False and image.format == "JPEG":
        image.draft("L", image.size)  # the file's luminance, which libjpeg returns to OpenCV
    if image.mode in GREY_MODES:
        grey = _eight_bits(image)[None]
        return np.repeat(grey, 3, axis=0) if color else grey
    transparent = image.mode in ("RGBA", "LA", "PA") or (image.mode == "P" and "transparency" in image.info)
    pixels = pixels_of(image, "RGBA" if transparent else "RGB")
    if color is False:
        return _grey(pixels[:, :, :3])[None]
    planes = pixels.transpose(2, 0, 1)
    return planes[[2, 1, 0, 3]] if transparent and color is None else planes[2::-1]


def _eight_bits(image: Image.Image) -> np.ndarray:
    """Return a grey image's pixels as uint8 (H x W), of 16 bits the upper 8."""
    if image.mode in ("1", "L"):
        return np.asarray(image.convert("L"))
    return (np.asarray(image).astype(np.int64) >> 8).astype(np.uint8)


def _grey(pixels: np.ndarray) -> np.ndarray:
    """Return the luminance of R G B pixels (H x W x 3) as uint8 (H x W)."""
    return ((pixels.astype(np.int32) @ np.array(GREY_WEIGHTS, np.int32)) >> 15).astype(np.uint8)


def _halve(image: np.ndarray) -> np.ndarray:
    """Average 2 x 2 pixels, as OpenCV does in place of interpolation at exactly half the size."""
    pixels = image.astype(np.int32)
    rows = pixels[:, 0::2] + pixels[:, 1::2]
    return ((rows[:, :, 0::2] + rows[:, :, 1::2] + 2) >> 2).astype(np.uint8)


def _resize_floats(image: np.ndarray, height: int, width: int) -> np.ndarray:
    left, right, share = _neighbours(image.shape[2], width)
    rows = image[:, :, left] * (1 - share) + image[:, :, right] * share
    above, below, share = _neighbours(image.shape[1], height)
    share = share[:, None]
    resized: np.ndarray = rows[:, above] * (1 - share) + rows[:, below] * share
    return resized.astype(image.dtype, copy=False)


def _neighbours(source: int, target: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each target pixel its two source pixels, equal at the edges, and the weight of the second."""
    place = ((np.arange(target) + 0.5) * (source / target) - 0.5).astype(np.float32).clip(0, source - 1)
    first = np.floor(place).astype(np.int64)
    return first, np.minimum(first + 1, source - 1), place - first.astype(np.float32)


def _interpolation(source: int, target: int, clamped: bool) -> tuple[np.ndarray, ...]:
    """Return for each target pixel its two source pixels and their weights, which sum to 2048.

    `clamped` gives the pixel at the edge the whole weight, as OpenCV does along a row. Along a column OpenCV applies
    both weights to the row at the edge, which rounds differently.
    """
    place = (np.arange(target) + 0.5) * (1.0 / (target / source)) - 0.5
    place = place.astype(np.float32)
    first = np.floor(place).astype(np.int64)
    share = place - first.astype(np.float32)
    if clamped:
        share[(first < 0) | (first >= source - 1)] = 0
        first = np.clip(first, 0, source - 1)
    scale = np.float32(1 << RESIZE_BITS)
    second_weight = np.rint(share * scale).astype(np.int32)
    first_weight = np.rint((np.float32(1) - share) * scale).astype(np.int32)
    return first.clip(0, source - 1), (first + 1).clip(0, source - 1), first_weight, second_weight
