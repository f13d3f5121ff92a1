"""MultiBoxLoss: SSD's loss of box codes and class scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scaffe.blob import on_host
from scaffe.layers.box_matching import hard_negatives, match
from scaffe.layers.boxes import check_labels
from scaffe.layers.layer import Blobs, register
from scaffe.layers.loss import LossLayer
from scaffe.layers.priors import Priors
from scaffe.layers.sigmoid import sigmoid
from scaffe.layers.softmax import softmax

NOT_HERE = {
    "share_location": True,
    "use_prior_for_matching": True,
    "map_object_to_agnostic": False,
    "ignore_cross_boundary_bbox": False,
    "bp_inside": False,
}
BOX = 8  # numbers of a true box: image, label, instance, xmin, ymin, xmax, ymax, difficult


class Chosen(NamedTuple):
    """The priors of an image whose loss counts: those with a box and their codes, and all with their labels."""

    matched: np.ndarray
    codes: np.ndarray
    scored: np.ndarray
    labels: np.ndarray


class MultiBoxLoss(LossLayer):
    """loss = (loc_weight sum of box losses + sum of class losses) / normaliser, by default the number of matches.

    Bottoms: codes of boxes (N x 4 priors), scores (N x priors num_classes), priors (1 x 2 x 4 priors), true boxes
    (1 x 1 x K x 8): image, label, instance, xmin, ymin, xmax, ymax, difficult. Priors are matched with the true boxes;
    a matched prior has the loss of its code (SMOOTH_L1 or L2) and of its class (SOFTMAX or LOGISTIC), and so many
    others of an image as `neg_pos_ratio` times its matches that of the background. Liu et al. 2016, section 2.2.
    """

    bottoms = (4, 4)
    bottom_names = "locations, confidences, priors, true boxes"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        super().setup(bottom, top)
        param = self.param.multibox_loss_param
        for field, only in NOT_HERE.items():
            if getattr(param, field) != only:
                raise self.error(f"{field}: {str(not only).lower()} is not here; leave it out")
        if param.mining_type == param.HARD_EXAMPLE or param.HasField("nms_param"):
            raise self.error("mining_type: HARD_EXAMPLE and nms_param are not here; take MAX_NEGATIVE or NONE")
        if not 0 <= param.neg_pos_ratio < np.inf:
            raise self.error(f"neg_pos_ratio is {param.neg_pos_ratio:g}; give 0 or more")
        self.mines = param.mining_type == param.MAX_NEGATIVE
        if param.HasField("do_neg_mining") and param.do_neg_mining != self.mines:
            raise self.error("do_neg_mining contradicts mining_type; leave do_neg_mining out")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.priors = Priors(self, self.param.multibox_loss_param, bottom)
        param = self.param.multibox_loss_param
        if param.background_label_id >= param.num_classes:
            raise self.error(
                f"background_label_id {param.background_label_id} is none of num_classes: {param.num_classes}"
            )
        if bottom[3].count % BOX or bottom[3].shape[-1:] != (BOX,):
            raise self.shape_error(
                f"bottom 3 has shape {bottom[3].shape}; give true boxes, 1 x 1 x K x {BOX}, as of AnnotatedData"
            )
        top[0].reshape()

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.multibox_loss_param
        self.code = self.priors.code(bottom, param.code_type, param.encode_variance_in_target)
        self.scores = self.priors.scores(bottom)
        truth = self._truth(bottom)
        self.chosen = [self._choose(scores, boxes) for scores, boxes in zip(self.scores, truth, strict=True)]
        codes = self.priors.codes(bottom)[:, :, 0]
        self.code_slopes, self.score_slopes, loss = [], [], 0.0
        for image, one in enumerate(self.chosen):
            total, slope = self._box_loss(codes[image, one.matched] - one.codes)
            self.code_slopes.append(param.loc_weight * slope)
            loss += param.loc_weight * total
            total, slope = self._class_loss(self.scores[image, one.scored], one.labels)
            self.score_slopes.append(slope)
            loss += total
        matches = np.array([sum(len(one.matched) for one in self.chosen)])
        self.divisor = self.normalizer(self.priors.num, self.priors.count, matches)
        top[0].array[...] = loss / self.divisor

    def _truth(self, bottom: Blobs) -> list[np.ndarray]:
        """Return the true boxes (m x 8) of each image. Raise NetError for one that is none of the classes or images."""
        param, rows = self.param.multibox_loss_param, on_host(bottom[3].array).reshape(-1, BOX)
        rows = rows[rows[:, 0] >= 0]
        if not param.use_difficult_gt:
            rows = rows[rows[:, 7] == 0]
        check_labels(self, rows, self.priors.classes, param.background_label_id)
        if len(rows) and rows[:, 0].max() >= self.priors.num:
            raise self.error(f"a true box is of image {rows[:, 0].max():g}; the batch here has {self.priors.num}")
        return [rows[rows[:, 0] == image] for image in range(self.priors.num)]

    def _choose(self, scores: np.ndarray, truth: np.ndarray) -> Chosen:
        param = self.param.multibox_loss_param
        threshold = param.overlap_threshold if param.match_type == param.PER_PREDICTION else None
        boxes = truth[:, 3:7]
        index, largest = match(self.code.priors, boxes, threshold)
        matched = np.flatnonzero(index >= 0)
        labels = np.full(len(index), param.background_label_id)
        labels[matched] = truth[index[matched], 1]
        scored = np.arange(len(index))
        if self.mines:
            losses = self._losses(scores, labels)
            negatives = hard_negatives(index, largest, losses, param.neg_pos_ratio, param.neg_overlap)
            scored = np.concatenate([matched, negatives])
        return Chosen(matched, self.code.encode(boxes[index[matched]], matched), scored, labels[scored])

    def _box_loss(self, distance: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the sum of the losses of distances (n x 4) of codes, and its gradient."""
        param = self.param.multibox_loss_param
        if param.loc_loss_type == param.L2:
            return float(0.5 * (distance**2).sum()), distance
        size = np.abs(distance)
        return float(np.where(size < 1, 0.5 * distance**2, size - 0.5).sum()), np.clip(distance, -1, 1)

    def _class_loss(self, scores: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the sum of the losses of scores (n x classes), and its gradient."""
        return float(self._losses(scores, labels).sum()), self._chances(scores) - self._wanted(scores, labels)

    def _losses(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the loss of each row of scores."""
        param = self.param.multibox_loss_param
        found: np.ndarray
        if param.conf_loss_type == param.LOGISTIC:
            found = (np.logaddexp(0, scores) - scores * self._wanted(scores, labels)).sum(axis=1)
            return found
        top = scores.max(axis=1)
        found = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - scores[np.arange(len(scores)), labels]
        return found

    def _wanted(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return 1 at each row's label, else 0."""
        wanted = np.zeros_like(scores)
        wanted[np.arange(len(scores)), labels] = 1
        return wanted

    def _chances(self, scores: np.ndarray) -> np.ndarray:
        param, chances = self.param.multibox_loss_param, np.empty_like(scores)
        (sigmoid if param.conf_loss_type == param.LOGISTIC else softmax)(np, scores, chances)
        return chances

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for index, what in ((2, "priors"), (3, "true boxes")):
            self.refuse_gradient(propagate_down, index, what)
        scale = float(on_host(top[0].diff_array)) / self.divisor
        rows = ([one.matched for one in self.chosen], self.code_slopes), ([one.scored for one in self.chosen],
                                                                         self.score_slopes)  # fmt: skip
        for blob, down, (places, slopes) in zip(bottom, propagate_down, rows, strict=False):
            if down:
                self._write(blob, places, slopes, scale)

    def _write(self, blob: Any, places: list[np.ndarray], slopes: list[np.ndarray], scale: float) -> None:
        """Write the gradients of the chosen priors into a bottom, 0 for the others."""
        dx = np.zeros((self.priors.num, self.priors.count, slopes[0].shape[1]), blob.diff_array.dtype)
        for row, chosen, slope in zip(dx, places, slopes, strict=True):
            row[chosen] = scale * slope
        blob.diff_array[...] = self.xp.asarray(dx.reshape(blob.shape))

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index < 2


register("MultiBoxLoss", MultiBoxLoss)
