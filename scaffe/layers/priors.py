"""What SSD's layers read: predicted codes of boxes, scores, and the priors of both."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.blob import on_host
from scaffe.layers.boxes import Code
from scaffe.layers.layer import Blobs, Layer


class Priors:
    """The numbers of a layer's bottoms: codes (N x priors loc_classes 4), scores (N x priors classes), priors.

    `param` has num_classes, share_location and background_label_id. Raise ShapeError for bottoms that do not fit.
    """

    def __init__(self, layer: Layer, param: Any, bottom: Blobs):
        if not param.num_classes:
            raise layer.error("needs num_classes, at least 1")
        self.classes = param.num_classes
        self.loc_classes = 1 if param.share_location else self.classes
        self.num, priors = bottom[0].num, bottom[2].shape
        if len(priors) != 3 or priors[:2] != (1, 2) or priors[2] % 4:
            raise layer.shape_error(f"bottom 2 has shape {priors}; give priors, 1 x 2 x 4 for each, as of PriorBox")
        self.count = priors[2] // 4
        for i, (what, each) in enumerate((("locations", 4 * self.loc_classes), ("confidences", self.classes))):
            have = bottom[i].count // max(1, bottom[i].num)
            if bottom[i].num != self.num or have != self.count * each:
                raise layer.shape_error(
                    f"{self.count} priors in bottom 2 {priors} need {self.count * each} {what} a sample in bottom {i}, "
                    f"which has shape {bottom[i].shape}; do the convolutions have num_output for each prior of a pixel?"
                )

    def codes(self, bottom: Blobs) -> np.ndarray:
        """Return the codes (N x priors x loc_classes x 4), on the host."""
        return on_host(bottom[0].array).reshape(self.num, self.count, self.loc_classes, 4)

    def scores(self, bottom: Blobs) -> np.ndarray:
        """Return the scores (N x priors x classes), on the host."""
        return on_host(bottom[1].array).reshape(self.num, self.count, self.classes)

    def code(self, bottom: Blobs, kind: int, in_target: bool) -> Code:
        """Return the code of boxes relative to the priors."""
        priors, variances = on_host(bottom[2].array).reshape(2, self.count, 4)
        return Code(kind, in_target, priors, variances)
