"""DetectionOutput: the boxes that SSD's predictions stand for."""

from __future__ import annotations

import logging

import numpy as np

from scaffe.layers.boxes import best_first, suppress
from scaffe.layers.detections import Detections
from scaffe.layers.layer import Blobs, register
from scaffe.layers.priors import Priors

log = logging.getLogger("scaffe")


class DetectionOutput(Detections):
    """List the boxes of each class that are left by non-maximum suppression, at most `keep_top_k` of an image.

    Bottoms: codes of boxes (N x 4 priors), probabilities (N x priors num_classes), priors (1 x 2 x 4 priors). The boxes
    of a class are the `nms_param.top_k` best above `confidence_threshold`. Liu et al. 2016, section 3.
    """

    bottoms = (3, 3)
    bottom_names = "locations, confidences, priors"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.detection_output_param
        if param.HasField("save_output_param") or param.visualize or param.save_file:
            log.info("layer '%s': save_output_param, visualize and save_file have no effect", self.name)
        if not 0 < param.nms_param.eta <= 1 or param.nms_param.nms_threshold < 0:
            raise self.error("nms_param needs nms_threshold of 0 or more, and eta above 0 and up to 1")
        self.least = param.confidence_threshold if param.HasField("confidence_threshold") else -np.inf
        self.most = param.nms_param.top_k if param.nms_param.HasField("top_k") else -1

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.priors = Priors(self, self.param.detection_output_param, bottom)
        top[0].reshape(1, 1, 1, 7)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.detection_output_param
        code = self.priors.code(bottom, param.code_type, param.variance_encoded_in_target)
        images = zip(self.priors.codes(bottom), self.priors.scores(bottom), strict=True)
        rows = []
        for i, (codes, scores) in enumerate(images):
            boxes = [code.decode(codes[:, c]) for c in range(self.priors.loc_classes)]
            rows.append(self._of_image(i, boxes, scores))
        self.give(rows, top, self.priors.num)

    def _of_image(self, image: int, boxes: list[np.ndarray], scores: np.ndarray) -> np.ndarray:
        """Return the rows of an image, by class, the best first."""
        param, rows = self.param.detection_output_param, [np.empty((0, 7))]
        for label in range(self.priors.classes):
            if label == param.background_label_id:
                continue
            found = best_first(scores[:, label], self.least, self.most)
            own = boxes[0 if param.share_location else label]
            kept = found[suppress(own[found], param.nms_param.nms_threshold, param.nms_param.eta)]
            rows.append(self.rows(image, np.full(len(kept), label), scores[kept, label], own[kept]))
        all_rows = np.concatenate(rows)
        if param.keep_top_k < 0 or len(all_rows) <= param.keep_top_k:
            return all_rows
        best = np.sort(np.argsort(-all_rows[:, 2], kind="stable")[: param.keep_top_k])
        return all_rows[best]


register("DetectionOutput", DetectionOutput)
