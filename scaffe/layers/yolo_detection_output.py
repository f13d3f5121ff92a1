"""YoloDetectionOutput: the boxes that YOLOv2's predictions stand for."""

from __future__ import annotations

import numpy as np

from scaffe.blob import Blob, on_host
from scaffe.layers.boxes import suppress
from scaffe.layers.detections import Detections
from scaffe.layers.layer import Blobs, register
from scaffe.layers.region import activate, boxes_of


class YoloDetectionOutput(Detections):
    """List the boxes whose objectness times largest class probability is `confidence_threshold` or more.

    Bottoms: one or two predictions (N x num_box (coords + 1 + num_classes) x H x W). Of boxes that overlap by
    `nms_threshold` or more, of any class, the best stays. Labels begin at 1. `biases` has the boxes' default width and
    height, in pixels of the bottom. Of MobileNet-YOLO's Caffe; Redmon and Farhadi 2016, section 2.
    """

    bottoms = (1, 2)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.yolo_detection_output_param
        if not param.num_classes or not param.num_box or param.coords < 4:
            raise self.error(
                "yolo_detection_output_param needs num_classes and num_box of at least 1, coords from 4 on"
            )
        if len(param.biases) != 2 * param.num_box:
            raise self.error(
                f"{len(param.biases)} biases for num_box {param.num_box}; give a width and height for each"
            )
        self.anchors = np.reshape(np.array(param.biases, np.float64), (-1, 2))
        self.sides = [boxes_of(self, b.shape, param.num_box, param.coords + 1 + param.num_classes) for b in bottom]
        if any(blob.num != bottom[0].num for blob in bottom):
            raise self.shape_error(f"bottoms have {bottom[0].num} and {bottom[1].num} images; give the same number")
        top[0].reshape(1, 1, 1, 7)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        parts = [self._found(blob, view) for blob, view in zip(bottom, self.sides, strict=True)]
        images = bottom[0].shape[0]
        rows = [self._of_image(i, np.concatenate([part[i] for part in parts])) for i in range(images)]
        self.give(rows, top, images)

    def _found(self, blob: Blob, view: tuple[int, int, int, int]) -> list[np.ndarray]:
        """Return each image's boxes: label, score, box (k x 6)."""
        param, (height, width) = self.param.yolo_detection_output_param, blob.shape[2:]
        y = activate(np, on_host(blob.array).reshape(view), param.coords).transpose(0, 3, 1, 2)
        row, column = np.divmod(np.arange(height * width), width)
        corner = np.stack([column, row], -1)[:, None]
        size = np.array([width, height])
        centre, side = (corner + y[..., :2]) / size, np.exp(y[..., 2:4]) * self.anchors / size
        classes = y[..., param.coords + 1 :]
        scores = y[..., param.coords] * classes.max(-1)
        values = [classes.argmax(-1)[..., None] + 1, scores[..., None], centre - side / 2, centre + side / 2]
        rows = np.concatenate(values, -1).reshape(len(y), -1, 6)
        return [one[one[:, 1] >= param.confidence_threshold] for one in rows]

    def _of_image(self, image: int, found: np.ndarray) -> np.ndarray:
        found = found[np.argsort(-found[:, 1], kind="stable")]
        below = np.nextafter(self.param.yolo_detection_output_param.nms_threshold, 0)  # at the threshold it goes
        best = found[suppress(found[:, 2:], float(below))]
        return self.rows(image, best[:, 0], best[:, 1], best[:, 2:])


register("YoloDetectionOutput", YoloDetectionOutput)
