"""InfogainLoss: cross entropy with a weight for each pair of label and class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.layer import Blobs, register
from scaffe.layers.softmax_loss import SoftmaxWithLoss
from scaffe.proto import BlobProto, blobs
from scaffe.proto.files import parse_binary, read_bytes

SMALLEST = 1e-20  # Caffe's lower bound of a probability; it keeps the loss finite


class InfogainLoss(SoftmaxWithLoss):
    """loss = -sum over labels l and classes k of H[l, k] log(softmax(scores)[k]) / normaliser.

    Bottoms and tops are those of SoftmaxWithLoss; H (classes x classes) is the third bottom, or the .binaryproto file
    `source`.
    """

    bottoms = (2, 3)
    bottom_names = "scores, labels, weights unless source gives them"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        super().setup(bottom, top)
        source = self.param.infogain_loss_param.source
        if self.param.loss_param.HasField("normalize"):
            raise self.error("loss_param has normalize, which this layer doesn't take; give normalization")
        if len(bottom) < 3 and not source:
            raise self.error("needs infogain_loss_param { source: FILE } or a third bottom, the weights of the classes")
        self.weights = None if len(bottom) > 2 else self._read(source)

    def _read(self, source: str) -> Any:
        stored = parse_binary(read_bytes(source), source, BlobProto)
        return self.xp.asarray(blobs.values(stored))

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        count = bottom[2].count if self.weights is None else self.weights.size
        if count != self.classes**2:
            raise self.shape_error(f"{self.classes} classes need {self.classes**2} weights, got {count}")

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        weights = bottom[2].array if self.weights is None else self.weights
        self.matrix = weights.reshape(self.classes, self.classes)
        super().forward(bottom, top)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if len(bottom) > 2:
            self.refuse_gradient(propagate_down, 2, "weights of the classes")
        super().backward(top, propagate_down, bottom)

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index == 0

    def _losses(self) -> Any:
        logs = self.xp.log(self.xp.maximum(self.prob, SMALLEST))
        return -(self._rows() * logs).sum(axis=1)

    def _differentiate(self, dx: Any) -> None:
        self.xp.multiply(self.prob, self.matrix.sum(axis=1)[self.labels][:, None], out=dx)
        dx -= self._rows()

    def _rows(self) -> Any:
        """Return each label's row of H, (outer x classes x inner)."""
        return self.matrix[self.labels].transpose(0, 2, 1)

    @property
    def given_axis(self) -> int:
        return int(self.param.infogain_loss_param.axis)


register("InfogainLoss", InfogainLoss)
