"""ProposalLayer: Faster R-CNN's regions of interest, for prototxts with module: 'rpn.proposal_layer'.

    PYTHONPATH=jobs scaffe time --model test.prototxt --allow-python-layers

Ren et al. 2015, section 3.1: anchors of 3 scales and 3 ratios at each pixel, moved by what the net predicts, clipped to
the picture, without those of sides below 16 pixels; the best 6000, and of those 300 that overlap none by more than 0.7.
"""

from __future__ import annotations

import caffe
import numpy as np

BASE, RATIOS, SCALES = 16, (0.5, 1, 2), (8, 16, 32)
BEFORE, AFTER, OVERLAP, LEAST = 6000, 300, 0.7, 16


def anchors() -> np.ndarray:
    """Return the corners (9 x 4) of the boxes around the first cell, by the rounding of the paper's code."""
    found = []
    for ratio in RATIOS:
        width = round((BASE * BASE / ratio) ** 0.5)
        for scale in SCALES:
            half = np.array([width * scale, round(width * ratio) * scale]) / 2 - 0.5
            found.append([*((BASE - 1) / 2 - half), *((BASE - 1) / 2 + half)])
    return np.array(found)


class ProposalLayer(caffe.Layer):
    """Bottoms: scores (1 x 18 x H x W), shifts (1 x 36 x H x W), height, width and scale of the picture (1 x 3)."""

    def setup(self, bottom, top) -> None:
        """Read the stride: param_str is "'feat_stride': 16"."""
        self.stride = int(self.param_str.partition(":")[2] or BASE)
        top[0].reshape(1, 5)

    def reshape(self, bottom, top) -> None:
        """Leave the top's shape to `forward`."""

    def forward(self, bottom, top) -> None:
        """Write the regions (k x 5): 0, x1, y1, x2, y2."""
        scores, shifts, (height, width, scale) = bottom[0].data, bottom[1].data, bottom[2].data[0, :3]
        count, (rows, columns) = scores.shape[1] // 2, scores.shape[2:]
        scores = scores[0, count:].transpose(1, 2, 0).reshape(-1)
        shifts = shifts[0].reshape(count, 4, rows, columns).transpose(2, 3, 0, 1).reshape(-1, 4)
        y, x = np.mgrid[:rows, :columns] * self.stride
        cells = np.stack([x, y, x, y], -1)[:, :, None] + anchors()
        boxes = self._moved(cells.reshape(-1, 4), shifts)
        boxes = np.clip(boxes, 0, [width - 1, height - 1] * 2)
        large = (boxes[:, 2:] - boxes[:, :2] + 1 >= LEAST * scale).all(1)
        order = np.flatnonzero(large)[np.argsort(-scores[large], kind="stable")][:BEFORE]
        kept = boxes[order][self._suppressed(boxes[order])][:AFTER]
        top[0].reshape(len(kept), 5)
        top[0].data[...] = np.insert(kept, 0, 0, axis=1)

    def backward(self, top, propagate_down, bottom) -> None:
        """Give no gradient, as in the paper."""

    def _moved(self, boxes: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        sides = boxes[:, 2:] - boxes[:, :2] + 1
        centres = boxes[:, :2] + sides / 2 + shifts[:, :2] * sides
        half = np.exp(np.minimum(shifts[:, 2:], 20)) * sides / 2
        return np.concatenate([centres - half, centres + half], 1)

    def _suppressed(self, boxes: np.ndarray) -> list[int]:
        areas = (boxes[:, 2:] - boxes[:, :2] + 1).prod(1)
        left, found = np.arange(len(boxes)), []
        while len(left) and len(found) < AFTER:
            best, rest = left[0], left[1:]
            found.append(int(best))
            meet = np.minimum(boxes[best, 2:], boxes[rest, 2:]) - np.maximum(boxes[best, :2], boxes[rest, :2]) + 1
            common = np.maximum(meet, 0).prod(1)
            left = rest[common / (areas[best] + areas[rest] - common) <= OVERLAP]
        return found
