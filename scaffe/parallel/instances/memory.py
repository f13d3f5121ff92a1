"""Memory: the arrays in which an instance computes, to ask where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from scaffe.net.net import Net


def arrays_of(net: Net) -> list[np.ndarray]:
    """Return the memory of a net on the host, each array once, as large as it was allocated.

    These are the parameters, the gradients, the blobs, and the engine's buffers for scratch and pooled values. Copies
    of weights in an engine's layout are not among them.
    """
    found = (_whole(array) for array in _arrays(net) if isinstance(array, np.ndarray))
    return list({array.ctypes.data: array for array in found if array.nbytes}.values())


def _arrays(net: Net) -> Iterator[Any]:
    yield from (net.packed.data, net.packed.diff)
    yield from net.engine.buffers()
    for blob in (*net.blobs.values(), *(blob for layer in net.layers for blob in layer.blobs)):
        for values in (blob.values, blob.diff_values):
            yield values.array
            yield getattr(values.form, "buffer", None)


def _whole(array: np.ndarray) -> np.ndarray:
    """Return the array of which this one is a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
