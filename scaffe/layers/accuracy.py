"""Accuracy: the fraction of labels that are among the k best scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.labels import class_indices, class_view
from scaffe.layers.layer import Blobs, Layer, register


class Accuracy(Layer):
    """y = the fraction of labels whose score is among the `top_k` best; equal scores count as better, as in Caffe.

    Bottoms: scores (outer x classes x inner), classes on `axis`; labels (outer x inner). Tops: y (), and optionally
    the accuracy of each class (classes), 0 for a class without labels. Labels equal to `ignore_label` do not count.
    The tops are this rank's part: the parts of all ranks add up to the accuracy over the global batch. Raise
    LabelError for a label that is no class. There is no gradient.
    """

    bottoms = (2, 2)
    bottom_names = "scores, labels"
    tops = (1, 2)
    summed_tops = 2

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.accuracy_param
        self.top_k = param.top_k
        self.ignore = param.ignore_label if param.HasField("ignore_label") else None

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        scores, labels = bottom
        axis = self.param.accuracy_param.axis
        self.view = self.outer, self.classes, self.inner = class_view(self, scores, axis, labels)
        if self.top_k > self.classes:
            raise self.shape_error(f"top_k {self.top_k} needs as many classes, got scores of shape {scores.shape}")
        top[0].reshape()
        if len(top) > 1:
            top[1].reshape(self.classes)

    def labels_taken(self) -> tuple[int, int | None]:
        return self.classes, self.ignore

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        labels, kept = class_indices(self, bottom[1], self.classes, self.ignore)
        labels = labels.reshape(self.outer, self.inner)
        correct = self._correct(bottom[0].array.reshape(self.view), labels)
        if kept is None:
            total: float = self.context.total(labels.size)
        else:
            kept = kept.reshape(labels.shape)
            correct, total = correct & kept, self.context.allsum(float(kept.sum()))
        top[0].array[...] = int(correct.sum()) / max(1, total)
        if len(top) > 1:
            self._per_class(correct, labels if kept is None else labels[kept], labels, top[1].array)

    def _correct(self, scores: Any, labels: Any) -> Any:
        """Return whether each label is among the top_k best scores, (outer x inner)."""
        xp = self.xp
        own = scores[xp.arange(self.outer)[:, None], labels, xp.arange(self.inner)][:, None]
        not_worse = (~(scores < own)).sum(axis=1)  # counts the label's own score too
        return not_worse <= self.top_k

    def _per_class(self, correct: Any, counted: Any, labels: Any, accuracies: Any) -> None:
        xp = self.xp
        hits = xp.bincount(labels[correct], minlength=self.classes)
        counts = xp.bincount(counted.reshape(-1), minlength=self.classes).tolist()
        accuracies[...] = hits / xp.maximum(xp.asarray(self.context.allsums(counts)), 1)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 0, "scores")
        self.refuse_gradient(propagate_down, 1, "labels")

    def allows_force_backward(self, bottom_index: int) -> bool:
        return False

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if self._axis(bottom) else "its classes are on axis 0"

    def _axis(self, bottom: Blobs) -> int:
        return self.canonical_axis(self.param.accuracy_param.axis, bottom[0])


register("Accuracy", Accuracy)
