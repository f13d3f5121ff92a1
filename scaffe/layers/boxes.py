"""Boxes of detectors: overlaps, non-maximum suppression, and their codes relative to priors.

A box is (xmin, ymin, xmax, ymax), the last axis of an array on the host; of SSD's, picture's sides are 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from readers.box_sampling import area
from scaffe.layers.layer import Layer
from scaffe.proto.caffe_pb2 import PriorBoxParameter

Array = Any  # on the host


def overlaps(a: Array, b: Array) -> Array:
    """Return the intersection over the union of each box of `a` (m x 4) with each of `b` (n x 4), (m x n)."""
    sides = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    meet = np.where((sides > 0).all(-1), sides[..., 0] * sides[..., 1], 0)
    union = area(a)[:, None] + area(b)[None] - meet
    return np.divide(meet, union, out=np.zeros_like(meet), where=meet > 0)


def suppress(boxes: Array, limit: float, eta: float = 1.0) -> list[int]:
    """Return the indices of the boxes (n x 4), best first, that no better kept one overlaps by more than `limit`.

    With `eta` below 1 the limit, while it is above 0.5, is multiplied by it after each kept box, as in SSD.
    """
    kept, worst = [], np.zeros(len(boxes))
    for i in range(len(boxes)):
        if worst[i] > limit:
            continue
        kept.append(i)
        np.maximum(worst[i + 1 :], overlaps(boxes[i : i + 1], boxes[i + 1 :])[0], out=worst[i + 1 :])
        if eta < 1 and limit > 0.5:
            limit *= eta
    return kept


def check_labels(layer: Layer, truth: Array, classes: int, background: int) -> None:
    """Raise NetError for a true box (of m x 8, its label on column 1) that is of no class, or of the background."""
    labels = truth[:, 1]
    wrong = labels[~np.isin(labels, [label for label in range(classes) if label != background])]
    if len(wrong):
        raise layer.error(
            f"a true box has label {wrong[0]:g}; num_classes: {classes} allows labels up to {classes - 1}, "
            f"but not that of the background, {background}"
        )


def best_first(scores: Array, least: float, most: int = -1) -> Array:
    """Return the indices of the scores above `least`, the highest first, at most `most` of them unless it is -1."""
    found = np.flatnonzero(scores > least)
    order = found[np.argsort(-scores[found], kind="stable")]
    return order if most < 0 else order[:most]


class Code:
    """A code of boxes relative to priors, SSD's `code_type`; Liu et al. 2016, section 2.2.

    The codes are divided by the priors' variances, unless these are in the targets.
    """

    def __init__(self, kind: int, in_target: bool, priors: Array, variances: Array):
        self.kind, self.priors = kind, priors
        self.variances: Any = 1.0 if in_target else variances

    def encode(self, boxes: Array, of: Any = slice(None)) -> Array:
        """Return the codes of boxes (n x 4) relative to the priors with the indices `of`."""
        priors = self.priors[of]
        if self.kind == PriorBoxParameter.CENTER_SIZE:
            (centres, sides), (prior_centres, prior_sides) = _centred(boxes), _centred(priors)
            code = np.concatenate([(centres - prior_centres) / prior_sides, np.log(sides / prior_sides)], -1)
        else:
            code = (boxes - priors) / self._unit(priors)
        return code / self._variances(of)

    def decode(self, codes: Array) -> Array:
        """Return the boxes (n x 4) of codes relative to all priors."""
        codes = codes * self._variances(slice(None))
        if self.kind != PriorBoxParameter.CENTER_SIZE:
            return self.priors + codes * self._unit(self.priors)
        centres, sides = _centred(self.priors)
        centres, sides = centres + codes[:, :2] * sides, np.exp(codes[:, 2:]) * sides
        return np.concatenate([centres - sides / 2, centres + sides / 2], -1)

    def _variances(self, of: Any) -> Any:
        return self.variances if isinstance(self.variances, float) else self.variances[of]

    def _unit(self, priors: Array) -> Any:
        """Return what the corners' differences are measured in."""
        if self.kind == PriorBoxParameter.CORNER:
            return 1.0
        return np.tile(priors[:, 2:] - priors[:, :2], 2)


def _centred(boxes: Array) -> tuple[Array, Array]:
    """Return the centres and the sides of boxes (n x 4), each (n x 2)."""
    return (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
