"""Dropout: random zeros in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.context import TRAIN
from scaffe.layers.layer import Blobs, Layer, register


class Dropout(Layer):
    """y = x / (1 - dropout_ratio) where kept, else 0; y = x in the TEST phase, unless `sample_weights_test`.

    x, y of any shape. An element is kept with probability 1 - dropout_ratio. The choice depends on the seed, the
    layer's name, the global batch's number and the sample's index in it, so that any number of ranks drops the same
    elements. May work in place. Srivastava et al. 2014, section 10, scaled in training.
    """

    in_place = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.ratio = self.param.dropout_param.dropout_ratio
        if not 0 <= self.ratio < 1:
            raise self.error(f"dropout_ratio is {self.ratio:g}; give a number from 0 to 1, 1 excluded")
        drops = self.context.phase == TRAIN or self.param.dropout_param.sample_weights_test
        self.active = drops and self.ratio > 0

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if self.active:
            self.kept = self.draw_uniform(bottom[0].shape) >= self.ratio
        self._drop(bottom[0].array, top[0].array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            self._drop(top[0].diff_array, bottom[0].diff_array)

    def _drop(self, source: Any, target: Any) -> None:
        if self.active:
            self.xp.multiply(source, self.kept, out=target)
            target *= 1 / (1 - self.ratio)
        elif target is not source:
            target[...] = source


register("Dropout", Dropout)
