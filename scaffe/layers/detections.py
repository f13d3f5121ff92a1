"""Detections: the base of layers whose top lists what they have found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.layer import Blobs, Layer


class Detections(Layer):
    """Give a top (1 x 1 x K x 7) of rows image, label, score, xmin, ymin, xmax, ymax; K changes from pass to pass.

    `image` counts this rank's samples. Where nothing is found, each image has a row with label -1, as in SSD.
    """

    reshapes_always = True

    def give(self, rows: list[np.ndarray], top: Blobs, images: int) -> None:
        """Write rows (each k x 7) into the top."""
        found = np.concatenate(rows) if rows else np.empty((0, 7))
        if not len(found):
            found = np.full((images, 7), -1.0)
            found[:, 0] = range(images)
        top[0].reshape(1, 1, *found.shape)
        top[0].array[...] = self.xp.asarray(found.astype(top[0].array.dtype))

    def rows(self, image: int, labels: np.ndarray, scores: np.ndarray, boxes: np.ndarray) -> np.ndarray:
        """Return the rows (k x 7) of an image's detections."""
        return np.column_stack([np.full(len(labels), image), labels, scores, boxes])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for index in range(len(bottom)):
            self.refuse_gradient(propagate_down, index, "predictions")

    def allows_force_backward(self, bottom_index: int) -> bool:
        return False
