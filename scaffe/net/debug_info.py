"""Debug info: what Caffe's nets log with `debug_info: true`, the mean magnitude of each blob once it is computed.

Values are looked at where they lie, so that a pass with these lines has the bits of one without. On a GPU they are read
as a user reads them: layers that one kernel computes together are then computed one by one.
"""

from __future__ import annotations

import logging
from math import nan, sqrt
from threading import current_thread
from typing import Any

import numpy as np

from scaffe.blob import Blob, Values, on_host
from scaffe.layers.layer import Layer
from scaffe.monitor.log import log
from scaffe.monitor.spans import instance_of
from scaffe.net.built import Built


def is_shown() -> bool:
    """Return whether the calling thread's lines go to the log: those of the first instance, where all lines go."""
    return log.isEnabledFor(logging.INFO) and instance_of(current_thread().name) in (None, 0)


def magnitude(values: Any) -> float:
    """Return the sum of the absolute values of an array."""
    return float(np.abs(values).sum(dtype=np.float64))


def mean(total: float, count: int) -> float:
    """Return a mean, nan for that of no values, as Caffe prints it."""
    return total / count if count else nan


def display_name(layer: Layer, index: int) -> str:
    """Return what Caffe's lines call a parameter: the name by which layers share it, or its number in the layer."""
    specs = layer.param.param
    return (specs[index].name if index < len(specs) else "") or str(index)


class DebugInfo:
    """Logs Caffe's lines about the passes of a net, a layer after the other, and the norms after a backward pass.

    Over several ranks they are about the first rank's rows and its part of the gradients, as in Caffe about those of
    the root solver.
    """

    def __init__(self, net: Built):
        self._net = net
        self._sums: dict[int, list[float]] | None = None  # by parameter: those of a backward pass from the last layer

    def forward(self, i: int) -> None:
        """Log the values of layer i's tops and parameters."""
        layer = self._net.layers[i]
        for name, blob in zip(self._net.nodes[i].tops, self._net.tops[i], strict=True):
            log.info("    [Forward] Layer %s, top blob %s data: %.6g", layer.name, name, self._mean(blob, blob.values))
        for k, blob in enumerate(layer.blobs):
            given = layer.name, display_name(layer, k), self._mean(blob, blob.values)
            log.info("    [Forward] Layer %s, param blob %s data: %.6g", *given)

    def backward(self, i: int) -> None:
        """Log the gradients that layer i has computed, and after layer 0 the norms of all parameters."""
        net, node = self._net, self._net.nodes[i]
        if i == len(net.layers) - 1:
            self._sums = {}
        if node.backward:
            self._log_gradients(i)
            self._add_up(net.layers[i].blobs)
        if i == 0 and self._sums is not None:
            self._log_norms()

    def _log_gradients(self, i: int) -> None:
        net, node, layer = self._net, self._net.nodes[i], self._net.layers[i]
        for name, blob, down in zip(node.bottoms, net.bottoms[i], node.down, strict=True):
            if down:
                given = layer.name, name, self._mean(blob, blob.diff_values)
                log.info("    [Backward] Layer %s, bottom blob %s diff: %.6g", *given)
        for k, blob in enumerate(layer.blobs):
            if layer.param_propagate_down[k]:
                found = self._mean(blob, blob.diff_values)
                log.info("    [Backward] Layer %s, param blob %d diff: %.6g", layer.name, k, found)

    def _add_up(self, blobs: list[Blob]) -> None:
        """Note the sums of parameters' values and gradients, which messages change once the layer is submitted."""
        owners = {blob: number for number, one in enumerate(self._net.parameters) for blob in one.blobs}
        for blob in blobs:
            if self._sums is not None:
                both = self._look(blob, blob.values), self._look(blob, blob.diff_values)
                self._sums[owners[blob]] = [*map(magnitude, both), *map(squares, both)]

    def _log_norms(self) -> None:
        """Log the norms, as an error as Caffe does."""
        assert self._sums is not None
        self._add_up([one.blob for number, one in enumerate(self._net.parameters) if number not in self._sums])
        data, diff, data_squares, diff_squares = np.sum([*self._sums.values(), [0.0] * 4], 0)
        text = "    [Backward] All net params (data, diff): L1 norm = (%.6g, %.6g); L2 norm = (%.6g, %.6g)"
        log.error(text, data, diff, sqrt(data_squares), sqrt(diff_squares))
        self._sums = None

    def _mean(self, blob: Blob, values: Values) -> float:
        return mean(magnitude(self._look(blob, values)), blob.count)

    def _look(self, blob: Blob, values: Values) -> np.ndarray:
        if self._net.engine.xp is not np:
            return on_host(values.plain(blob.shape, blob.xp))
        found: np.ndarray = values.look(blob.shape)
        return found


def squares(values: Any) -> float:
    """Return the sum of the squares of an array."""
    flat = np.asarray(values, np.float64).reshape(-1)
    return float(np.dot(flat, flat))
