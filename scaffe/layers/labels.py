"""Class labels and other indices held as floats, checked once a batch."""

from __future__ import annotations

from typing import Any

from scaffe.blob import Blob, around
from scaffe.layers.layer import Layer


def class_view(layer: Layer, scores: Blob, axis: int, labels: Blob) -> tuple[int, int, int]:
    """Return the scores' shape as (outer, classes, inner), the classes on `axis`.

    Raise ShapeError unless there are outer x inner labels.
    """
    if -len(labels.shape) <= axis < len(labels.shape):
        before, _, behind = around(labels.shape, axis % len(labels.shape))
        check_order(layer, scores, labels, before * behind)
    outer, classes, inner = around(scores.shape, layer.canonical_axis(axis, scores))
    if labels.count != outer * inner:
        raise layer.shape_error(
            f"scores of shape {scores.shape}, classes on axis {axis}, need {outer * inner} labels, "
            f"got shape {labels.shape}; give one label for each place, or name another axis"
        )
    return outer, classes, inner


def check_order(layer: Layer, scores: Blob, labels: Blob, places: int) -> None:
    """Raise ShapeError where `labels`, taken for scores of so many places, would have `scores` for their labels."""
    if scores.count == places < labels.count:
        raise layer.shape_error(
            f"bottom 0 has shape {scores.shape}, as labels have, and bottom 1 {labels.shape}, as scores have; "
            "write the bottom of the scores first, then that of the labels"
        )


def class_indices(layer: Layer, blob: Blob, classes: int, ignore: int | None) -> tuple[Any, Any]:
    """Return a blob's labels as integers, 0 where ignored, and a mask of those not ignored (None if all count).

    Raise LabelError for the first value that is neither an integer from 0 to classes - 1 nor `ignore`.
    """
    xp, labels = layer.xp, blob.array
    good = (labels >= 0) & (labels < classes) & (labels == xp.floor(labels))
    kept = None
    if ignore is not None:
        kept = labels != ignore
        good |= ~kept
    labels = layer.context.engine.sound_labels(layer, blob, good, classes, ignore)
    return (labels if kept is None else labels * kept).astype(int), kept
