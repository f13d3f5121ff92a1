"""Matching of priors with true boxes, and the choice of hard negatives, as in SSD; Liu et al. 2016, section 2.2."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.boxes import Array, best_first, overlaps

LEAST_OVERLAP = 1e-6


def match(priors: Array, boxes: Array, threshold: float | None) -> tuple[Array, Array]:
    """Return for each prior (n x 4) the index of its box (m x 4), -1 without one (n), and its overlap (n).

    Each box takes the free prior that it overlaps most, the pair with the largest overlap first. Of the priors that are
    left each takes the box that it overlaps most, by `threshold` or more, unless that is None. The overlap of a prior
    without a box is its largest.
    """
    both = overlaps(priors, boxes)
    both[both <= LEAST_OVERLAP] = 0
    largest = both.max(axis=1, initial=0)
    index, free = np.full(len(priors), -1), both.copy()
    while free.size and (best := int(free.argmax())) >= 0 and free.flat[best] > 0:
        prior, box = divmod(best, len(boxes))
        index[prior], largest[prior] = box, free[prior, box]
        free[prior], free[:, box] = 0, 0
    if threshold is not None and len(boxes):
        best_box = both.argmax(axis=1)
        found = (index == -1) & (both.max(axis=1) >= max(threshold, LEAST_OVERLAP))
        index[found] = best_box[found]
    return index, largest


def hard_negatives(index: Array, largest: Array, losses: Array, ratio: float, most_overlap: float) -> Array:
    """Return the priors without a box that have the largest losses, at most `ratio` times as many as have one.

    They must overlap every box by less than `most_overlap`.
    """
    scores = np.where((index == -1) & (largest < most_overlap), losses, -np.inf)
    chosen: Any = np.sort(best_first(scores, -np.inf, int((index >= 0).sum() * ratio)))
    return chosen
