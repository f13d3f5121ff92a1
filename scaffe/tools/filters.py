"""Pictures of a layer's filters."""

from __future__ import annotations

from io import BytesIO
from math import ceil, sqrt

import numpy as np

GAP = 1  # pixels between two filters
SIDE = 480  # pixels: small filters are enlarged until a picture is about this wide


def tiled(weights: np.ndarray) -> np.ndarray:
    """Return filters (N x C x H x W) side by side as an image, uint8 (H x W x C), from the least weight to the largest.

    Filters of 3 channels are in colour, others the mean of their channels (H x W x 1).
    """
    images = np.moveaxis(weights, 1, -1) if weights.shape[1] == 3 else weights.mean(axis=1)[..., None]
    low, high = float(images.min()), float(images.max())
    scaled: np.ndarray = np.rint((images - low) * (255 / (high - low or 1))).astype(np.uint8)
    columns = ceil(sqrt(len(scaled)))
    rows, (height, width, channels) = ceil(len(scaled) / columns), scaled.shape[1:]
    canvas = np.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, channels), 255, np.uint8)
    for i, image in enumerate(scaled):
        top, left = GAP + i // columns * (height + GAP), GAP + i % columns * (width + GAP)
        canvas[top : top + height, left : left + width] = image
    return canvas


def png(weights: np.ndarray) -> bytes:
    """Return such an image as a PNG file, each weight a square of whole pixels."""
    from PIL import Image

    canvas = tiled(weights)
    zoom = max(1, SIDE // canvas.shape[1])
    large = canvas.repeat(zoom, axis=0).repeat(zoom, axis=1)
    file = BytesIO()
    Image.fromarray(large if large.shape[2] == 3 else large[..., 0]).save(file, "PNG")
    return file.getvalue()
