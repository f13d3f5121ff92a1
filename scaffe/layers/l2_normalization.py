"""L2Normalization: each sample divided by its Euclidean norm."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.layer import Blobs, register
from scaffe.layers.normalize import NormDivision


class L2Normalization(NormDivision):
    """y = x / sqrt(sum of x^2 + eps) over each sample, `eps` of `l2n_param`; x and y (N x C x ...).

    Of compact bilinear pooling; Gao et al. 2016, section 3.3.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.eps = self.param.l2n_param.eps

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.set_view(bottom)
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self.divide(bottom[0].array.reshape(self.view), top[0].array.reshape(self.view))

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            quotient = bottom[0].array.reshape(self.view) / self.norm
            self.divide_back(quotient, top[0].diff_array.reshape(self.view), bottom[0].diff_array.reshape(self.view))


register("L2Normalization", L2Normalization)
