"""What is finite: values that have diverged are neither trained on nor written into a file."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.errors import SnapshotError
from scaffe.packed import PackedParameters

if TYPE_CHECKING:
    from scaffe.layers.layer import Layer


@np.errstate(all="ignore")
def all_finite(values: Any) -> bool:
    """Say whether an array of float32, on the host or a device, holds neither NaN nor an infinity.

    The sum of its squares tells so in one pass; each value is looked at where that sum is too large.
    """
    flat = values.reshape(-1)
    return isfinite(float(flat.dot(flat))) or bool(np.isfinite(flat).all())


def first_faulty(packed: PackedParameters, flat: Any, part: slice) -> int | None:
    """Return the number of the first parameter in that part of a flat array that is not finite, None if all are."""
    if all_finite(flat[part]):
        return None
    there = (i for i, where in enumerate(packed.slices) if part.start <= where.start and where.stop <= part.stop)
    return next((i for i in there if not all_finite(flat[packed.slices[i]])), None)


def check_layers(layers: Iterable[Layer], diffs: bool) -> None:
    """Raise SnapshotError unless all parameters are finite, and their gradients, if `diffs` are to be written too."""
    for layer in layers:
        for i, blob in enumerate(layer.blobs):
            if not all_finite(blob.data):
                raise _not_written(layer.name, i, "data")
            if diffs and not all_finite(blob.diff):
                raise _not_written(layer.name, i, "diff")


def check_history(packed: PackedParameters, history: Iterable[Any]) -> None:
    """Raise SnapshotError unless a solver's history is finite."""
    for flat in history:
        if (i := first_faulty(packed, flat, slice(0, flat.size))) is not None:
            raise _not_written(packed.parameters[i].layer, packed.parameters[i].index, "history")


def _not_written(layer: str, index: int, what: str) -> SnapshotError:
    return SnapshotError(
        f"layer '{layer}': the {what} of parameter {index} is not finite, so that no file is written; go on from an "
        "older snapshot, with a lower base_lr"
    )
