"""ShuffleChannel: channels of several groups, one of each group in turn."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from scaffe.layers.layer import Blobs, Layer, register


class ShuffleChannel(Layer):
    """y[n, j group + i] = x[n, i C / group + j]; x and y (N x C x ...).

    Channels of each group of a grouped convolution reach all groups of the next. Zhang et al. 2017, section 3.1.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.group = self.param.shuffle_channel_param.group

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        if len(shape) < 2:
            raise self.shape_error(f"needs a bottom with channels on axis 1, got shape {shape}")
        if not self.group or shape[1] % self.group:
            raise self.shape_error(f"group {self.group} doesn't divide {shape[1]} channels; choose a group that does")
        top[0].reshape(*shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self._split(top[0].array, last=True)[...] = self._split(bottom[0].array).swapaxes(1, 2)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            self._split(bottom[0].diff_array)[...] = self._split(top[0].diff_array, last=True).swapaxes(1, 2)

    def _split(self, array: Any, last: bool = False) -> Any:
        """Return an array as (N x group x C / group x inner), or with the group `last` of the two; a view."""
        numbers = array.shape[1] // self.group, self.group
        return array.reshape(len(array), *(numbers if last else numbers[::-1]), prod(array.shape[2:]))


register("ShuffleChannel", ShuffleChannel)
