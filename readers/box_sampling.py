"""Changes of annotated pictures for training, as in SSD: samples cut out, pictures on larger canvases, mirrors.

Boxes (n x 7) are label, instance, xmin, ymin, xmax, ymax, difficult, relative to the sides of their picture. Liu et al.
2016, sections 2.2 and 3.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from readers.annotated import Annotated
from readers.distortion import Distortion

Limits = tuple[float | None, float | None]
CORNERS = slice(2, 6)
WHOLE = np.array([0.0, 0, 1, 1])


@dataclass(frozen=True)
class Sampler:
    """Draws at most `most` samples in `trials`: parts of a picture that satisfy a constraint with one of its boxes.

    A sample has `scale` (least, most) times the picture's sides and `ratio` (least, most) of width to height. The
    constraints are limits, None for none: `jaccard` of the overlap with a box, `sample` of the part of the sample that
    a box covers, `inside` of the part of a box that the sample covers.
    """

    scale: tuple[float, float] = (1, 1)
    ratio: tuple[float, float] = (1, 1)
    jaccard: Limits = (None, None)
    sample: Limits = (None, None)
    inside: Limits = (None, None)
    most: int | None = None
    trials: int = 100

    def draw(self, boxes: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        """Return samples (xmin, ymin, xmax, ymax)."""
        found: list[np.ndarray] = []
        for _ in range(self.trials):
            if self.most is not None and len(found) >= self.most:
                break
            part = self._part(rng)
            if self._satisfied(part, boxes[:, CORNERS]):
                found.append(part)
        return found

    def _part(self, rng: np.random.Generator) -> np.ndarray:
        scale = rng.uniform(*self.scale)
        ratio = rng.uniform(max(self.ratio[0], scale**2), min(self.ratio[1], 1 / scale**2))
        sides = np.array([scale * ratio**0.5, scale / ratio**0.5])
        corner = rng.uniform(0, 1, 2) * (1 - sides)
        return np.concatenate([corner, corner + sides])

    def _satisfied(self, part: np.ndarray, boxes: np.ndarray) -> bool:
        limits = self.jaccard, self.sample, self.inside
        if all(one == (None, None) for one in limits):
            return True
        meet = common_area(part, boxes)
        parts = meet / (area(part) + area(boxes) - meet), meet / area(part), meet / area(boxes)
        return any(bool(_within(each, one).any()) for each, one in zip(parts, limits, strict=True) if any_of(one))


def any_of(limits: Limits) -> bool:
    """Return whether there is a limit."""
    return limits != (None, None)


def _within(values: np.ndarray, limits: Limits) -> np.ndarray:
    least, most = limits
    good: np.ndarray = (values >= (-np.inf if least is None else least)) & (
        values <= (np.inf if most is None else most)
    )
    return good


def area(boxes: np.ndarray) -> np.ndarray:
    """Return the areas of boxes (... x 4), 0 of those whose sides are negative."""
    sides = boxes[..., 2:] - boxes[..., :2]
    return np.where((sides < 0).any(-1), 0, sides[..., 0] * sides[..., 1])


def common_area(part: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return the areas that a part (4) has in common with boxes (n x 4)."""
    corners = np.maximum(part[:2], boxes[:, :2]), np.minimum(part[2:], boxes[:, 2:])
    return area(np.concatenate(corners, axis=1))


@dataclass(frozen=True)
class BoxChanges:
    """What is done with each annotated picture: other colours, a larger canvas, then a sample of the `samplers`.

    With probability `expand` (its first number) the picture is put on a canvas up to its second number times as large,
    of the colour `fill`. A box stays with a part if its centre is in it, or if `least_part` is given, if the part has
    so much of the box.
    """

    samplers: Sequence[Sampler] = ()
    expand: tuple[float, float] = (0, 1)
    fill: tuple[float, ...] = ()
    least_part: float | None = None
    colours: Distortion | None = None

    def apply(self, record: Annotated, rng: np.random.Generator) -> Annotated:
        """Return the changed picture and its boxes."""
        if self.colours is not None:
            record = record._replace(image=self.colours.apply(record.image, rng))
        if rng.random() < self.expand[0]:
            record = self._expanded(record, rng)
        samples = [part for sampler in self.samplers for part in sampler.draw(record.boxes, rng)]
        return self._cut(record, samples[rng.integers(len(samples))]) if samples else record

    def _expanded(self, record: Annotated, rng: np.random.Generator) -> Annotated:
        ratio = rng.uniform(1, max(1.0, self.expand[1]))
        if abs(ratio - 1) < 0.01:
            return record
        channels, *size = record.image.shape
        large = [int(side * ratio) for side in size]
        top, left = (int(rng.uniform(0, 1) * (whole - side)) for whole, side in zip(large, size, strict=True))
        canvas = np.zeros((channels, *large), record.image.dtype)
        if self.fill:
            canvas[...] = np.resize(np.rint(self.fill), channels)[:, None, None]
        canvas[:, top : top + size[0], left : left + size[1]] = record.image
        boxes, scale = record.boxes.copy(), np.tile(np.array(size[::-1]) / large[::-1], 2)
        boxes[:, CORNERS] = boxes[:, CORNERS] * scale + np.array([left / large[1], top / large[0]] * 2)
        return Annotated(canvas, boxes)

    def _cut(self, record: Annotated, part: np.ndarray) -> Annotated:
        if np.array_equal(part, WHOLE):
            return record
        height, width = record.image.shape[1:]
        left, top, right, bottom = (part * [width, height, width, height]).astype(int)
        image = record.image[:, top : max(bottom, top + 1), left : max(right, left + 1)]
        return Annotated(image, self._kept(record.boxes, part))

    def _kept(self, boxes: np.ndarray, part: np.ndarray) -> np.ndarray:
        """Return the boxes that stay with a part, relative to it, and clipped."""
        corners = boxes[:, CORNERS]
        if self.least_part is None:
            centres = (corners[:, :2] + corners[:, 2:]) / 2
            stays = ((centres >= part[:2]) & (centres <= part[2:])).all(axis=1)
        else:
            stays = common_area(part, corners) / area(corners) > self.least_part
        kept = boxes[stays].copy()
        kept[:, CORNERS] = ((kept[:, CORNERS] - np.tile(part[:2], 2)) / np.tile(part[2:] - part[:2], 2)).clip(0, 1)
        whole: np.ndarray = kept[area(kept[:, CORNERS]) > 0]
        return whole


def mirrored(boxes: np.ndarray) -> np.ndarray:
    """Return the boxes of a mirrored picture."""
    found = boxes.copy()
    found[:, 2], found[:, 4] = 1 - boxes[:, 4], 1 - boxes[:, 2]
    return found
