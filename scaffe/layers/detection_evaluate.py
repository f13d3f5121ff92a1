"""DetectionEvaluate: which detections are true, for the mean average precision of a test."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from scaffe.blob import on_host
from scaffe.layers import average_precision
from scaffe.layers.boxes import check_labels, overlaps
from scaffe.layers.layer import Blobs, Layer, register

log = logging.getLogger("scaffe")


class DetectionEvaluate(Layer):
    """Compare detections (1 x 1 x K x 7), as DetectionOutput's, with true boxes (1 x 1 x M x 8), as AnnotatedData's.

    Top (1 x 1 x L x 5): for each label but the background's a row -1, label, number of true boxes, -1, -1; then for
    each detection image, label, score, and 1, 0 where it is true, 0, 1 where it is false. It is true where it overlaps
    a true box of its label by `overlap_threshold` that no better one has. A test prints the mean average precision of
    all batches in place of this top. Without `evaluate_difficult_gt` difficult boxes and their detections count neither
    way.
    """

    bottoms = (2, 2)
    bottom_names = "detections, true boxes"
    reshapes_always = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.detection_evaluate_param
        if not param.num_classes:
            raise self.error("detection_evaluate_param needs num_classes, at least 1")
        if param.name_size_file:
            log.info("layer '%s': name_size_file has no effect: boxes are compared relative to the picture", self.name)
        self.labels = [label for label in range(param.num_classes) if label != param.background_label_id]

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        for blob, width, what in zip(bottom, (7, 8), ("detections", "true boxes"), strict=True):
            if blob.shape[-1:] != (width,):
                raise self.shape_error(f"{what} have shape {blob.shape}; give 1 x 1 x K x {width}")
        top[0].reshape(1, 1, len(self.labels), 5)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.detection_evaluate_param
        found, truth = (on_host(blob.array).reshape(-1, blob.shape[-1]) for blob in bottom)
        found, truth = found[found[:, 1] != -1], truth[truth[:, 0] >= 0]
        check_labels(self, truth, param.num_classes, param.background_label_id)
        counted = truth if param.evaluate_difficult_gt else truth[truth[:, 7] == 0]
        rows = [[average_precision.TRUTH, label, (counted[:, 1] == label).sum(), -1, -1] for label in self.labels]
        for image, label in np.unique(found[:, :2], axis=0):
            own = found[(found[:, :2] == (image, label)).all(axis=1)]
            true = truth[(truth[:, :2] == (image, label)).all(axis=1)]
            rows += self._judged(own[np.argsort(-own[:, 2], kind="stable")], true)
        top[0].reshape(1, 1, len(rows), 5)
        top[0].array[...] = self.xp.asarray(np.array(rows, top[0].array.dtype))

    def _judged(self, found: np.ndarray, truth: np.ndarray) -> list[list[float]]:
        """Return the rows of detections (k x 7) of one image and label, the best first."""
        param, rows, taken = self.param.detection_evaluate_param, [], set()
        both = overlaps(found[:, 3:], truth[:, 3:7])
        for detection, over in zip(found, both, strict=True):
            hit, counts, best = False, True, int(over.argmax()) if len(over) else -1
            if best >= 0 and over[best] >= param.overlap_threshold:
                counts = param.evaluate_difficult_gt or not truth[best, 7]
                hit = counts and best not in taken
                taken.add(best) if counts else None
            rows.append([*detection[:3], float(hit), float(counts and not hit)])
        return rows

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 0, "detections")
        self.refuse_gradient(propagate_down, 1, "true boxes")

    def allows_force_backward(self, bottom_index: int) -> bool:
        return False


register("DetectionEvaluate", DetectionEvaluate)
