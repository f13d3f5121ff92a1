"""SoftmaxWithLoss: cross entropy of the softmax of scores, with integer labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.labels import class_indices, class_view
from scaffe.layers.layer import Blobs, register
from scaffe.layers.loss import LossLayer
from scaffe.layers.softmax import softmax

SMALLEST = float(np.finfo(np.float32).tiny)  # Caffe's lower bound of a probability; it keeps the loss finite


class SoftmaxWithLoss(LossLayer):
    """loss = -sum of log(softmax(scores)[label]) / normaliser.

    Bottoms: scores (outer x classes x inner), classes on `axis`; labels (outer x inner), integers held as floats.
    Tops: loss (), and optionally the probabilities (outer x classes x inner). The normalisation is VALID by default:
    the number of labels that are not `ignore_label`. Raise LabelError for a label that is no class.
    """

    tops = (1, 2)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        scores, labels = bottom[:2]
        self.view = self.outer, self.classes, self.inner = class_view(self, scores, self.given_axis, labels)
        self.places = self.xp.arange(self.outer)[:, None], self.xp.arange(self.inner)
        top[0].reshape()
        if len(top) > 1:
            top[1].reshape(*scores.shape)

    def labels_taken(self) -> tuple[int, int | None]:
        return self.classes, self.ignore

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        scores = bottom[0].array.reshape(self.view)
        labels, self.kept = class_indices(self, bottom[1], self.classes, self.ignore)
        self.labels = labels.reshape(self.outer, self.inner)
        self.prob = self.buffer("prob", scores.shape, scores.dtype)
        self._softmax(scores, self.prob)
        losses = self._losses()
        if self.kept is not None:
            self.kept = self.kept.reshape(self.outer, self.inner)
            losses *= self.kept
        self.divisor = self.normalizer(self.outer, self.inner, self.kept)
        top[0].array[...] = losses.sum() / self.divisor
        if len(top) > 1:
            top[1].array[...] = self.prob.reshape(top[1].shape)

    def _softmax(self, scores: Any, prob: Any) -> None:
        softmax(self.xp, scores, prob)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 1, "labels")
        if not propagate_down[0]:
            return
        dx = bottom[0].diff_array.reshape(self.view)
        self._differentiate(dx)
        if self.kept is not None:
            dx *= self.kept[:, None]
        dx *= top[0].diff_array / self.divisor

    def _losses(self) -> Any:
        """Return the loss of each label, (outer x inner)."""
        outer, inner = self.places
        self.hit = outer, self.labels, inner
        return -self.xp.log(self.xp.maximum(self.prob[self.hit], SMALLEST))

    def _differentiate(self, dx: Any) -> None:
        """Write the gradient of the sum of `_losses` by the scores into `dx`."""
        dx[...] = self.prob
        dx[self.hit] -= 1

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if self._axis(bottom) else "its classes are on axis 0"

    def _axis(self, bottom: Blobs) -> int:
        return self.canonical_axis(self.given_axis, bottom[0])

    @property
    def given_axis(self) -> int:
        return int(self.param.softmax_param.axis)


register("SoftmaxWithLoss", SoftmaxWithLoss)
