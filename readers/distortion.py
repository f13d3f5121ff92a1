"""Changes of a picture's colours for training, as in SSD; Howard 2013, section 2."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

HUES = 180  # of OpenCV's pictures of 8 bits


@dataclass(frozen=True)
class Distortion:
    """Each change has a probability, and the limits of what it adds or multiplies.

    `brightness` and `hue` add up to their second number, either way; `contrast` and `saturation` multiply by a number
    between their second and third. `order` is the probability that channels change places. Half of the pictures have
    their contrast changed before saturation and hue, the others after.
    """

    brightness: tuple[float, float] = (0, 0)
    contrast: tuple[float, float, float] = (0, 1, 1)
    saturation: tuple[float, float, float] = (0, 1, 1)
    hue: tuple[float, float] = (0, 0)
    order: float = 0

    def apply(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a changed picture (3 x H x W, uint8, B G R)."""
        early = rng.random() > 0.5
        image = _bytes(image + self._drawn(rng, self.brightness[0], -self.brightness[1], self.brightness[1], 0))
        factors = [self._drawn(rng, *limits, 1) for limits in (self.contrast, self.saturation)]
        turn = self._drawn(rng, self.hue[0], -self.hue[1], self.hue[1], 0)
        if early:
            image = _bytes(image * factors[0])
        if (factors[1], turn) != (1, 0):
            image = _turned(image, factors[1], turn)
        if not early:
            image = _bytes(image * factors[0])
        return image[rng.permutation(3)] if rng.random() < self.order else image

    def _drawn(self, rng: np.random.Generator, chance: float, least: float, most: float, none: float) -> float:
        return rng.uniform(least, most) if rng.random() < chance else none


def _bytes(values: np.ndarray) -> np.ndarray:
    rounded: np.ndarray = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return rounded


def _turned(image: np.ndarray, factor: float, turn: float) -> np.ndarray:
    """Return a picture with its saturation multiplied, up to 1, and its hue increased: below 0 it is 0, as OpenCV's."""
    hue, saturation, value = to_hsv(image)
    return from_hsv(np.maximum(hue + turn, 0) % HUES, np.minimum(saturation * factor, 1), value)


def to_hsv(image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hue (0 to 180), saturation (0 to 1) and value (0 to 255) of a picture (3 x H x W, B G R)."""
    blue, green, red = image.astype(np.float64)
    value, least = image.max(0).astype(np.float64), image.min(0)
    span = value - least
    safe = np.where(span == 0, 1, span)
    sixths = [(green - blue) / safe, 2 + (blue - red) / safe]
    hue = np.select([value == red, value == green], sixths, 4 + (red - green) / safe)
    return hue * (HUES / 6) % HUES, span / np.where(value == 0, 1, value), value


def from_hsv(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return the picture (3 x H x W, uint8, B G R) of hue, saturation and value."""
    place = hue / (HUES / 6)
    channels = []
    for first in (1, 3, 5):  # blue, green, red
        part = (first + place) % 6
        channels.append(value - value * saturation * np.clip(np.minimum(part, 4 - part), 0, 1))
    return _bytes(np.stack(channels))
