"""Mean average precision of detections, as the PASCAL VOC counts it, by Everingham et al. 2010, section 4.2."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

TRUTH = -1  # in the place of an image: a row that has the number of true boxes of a label


def integral(precision: np.ndarray, recall: np.ndarray) -> float:
    """Return the sum of the precisions at each step of the recall."""
    return float((precision * np.diff(recall, prepend=0)).sum())


def max_integral(precision: np.ndarray, recall: np.ndarray) -> float:
    """Return the area under the precision, made to fall with the recall, as in VOC from 2010 on."""
    return integral(np.maximum.accumulate(precision[::-1])[::-1], recall)


def eleven_points(precision: np.ndarray, recall: np.ndarray) -> float:
    """Return the mean of the largest precisions at recalls of 0, 0.1, ..., 1 and above, as in VOC 2007."""
    return float(np.mean([precision[recall >= np.float32(j / 10)].max(initial=0) for j in range(11)]))


VERSIONS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "Integral": integral,
    "MaxIntegral": max_integral,
    "11point": eleven_points,
}


def by_class(parts: Iterable[np.ndarray], version: str) -> dict[int, float]:
    """Return the average precision of each label, given DetectionEvaluate's rows (k x 5) of all batches.

    A row is image, label, score, and 1 for a true or a false detection; or TRUTH, label, and the number of true boxes.
    """
    rows = np.concatenate([np.reshape(part, (-1, 5)) for part in parts])
    counts = rows[rows[:, 0] == TRUTH]
    return {int(label): _average(rows, counts, label, VERSIONS[version]) for label in np.unique(counts[:, 1])}


def _average(rows: np.ndarray, counts: np.ndarray, label: float, area: Callable[..., float]) -> float:
    truth = counts[counts[:, 1] == label, 2].sum()
    own = rows[(rows[:, 0] != TRUTH) & (rows[:, 1] == label) & (rows[:, 3:].any(axis=1))]
    if not truth or not len(own):
        return 0.0
    hits, misses = np.cumsum(own[np.argsort(-own[:, 2], kind="stable"), 3:], axis=0).T
    return area(hits / (hits + misses), (hits / truth).astype(np.float32))
