"""Names: which blobs and layers a pass is asked for by name, as in pycaffe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from scaffe.blob import Blob, Shape
from scaffe.errors import ShapeError, UnknownBlobError, UnknownLayerError
from scaffe.near import near


def fill(blobs: Mapping[str, Blob], name: str, given: npt.ArrayLike, known: Sequence[str], part: str) -> None:
    """Write what is given to the blob of that name, one of `known`; `part` is "data" or "diff"."""
    if name not in known:
        raise UnknownBlobError(f"'{name}' can't be given {part}; the net's blobs that can: {' '.join(known) or 'none'}")
    blob = blobs[name]
    values = np.asarray(given)
    if values.shape != blob.shape and not _repeats(values.shape, blob.shape):
        raise ShapeError(f"blob '{name}' has shape {blob.shape}, got {values.shape}; reshape the blob first")
    getattr(blob, part)[...] = values


def wanted(blobs: Mapping[str, Blob], names: list[str], more: Sequence[str] | None) -> list[str]:
    """Return the names of the blobs to return. Raise UnknownBlobError for one that the net does not have."""
    for name in more or ():
        if name not in blobs:
            raise UnknownBlobError(f"no blob '{name}'{near(name, blobs, 'blobs')}")
    return [*names, *(more or ())]


def numbers_of(names: Sequence[str], start: str | None, end: str | None) -> tuple[int, int]:
    """Return the indices of the layers by those of their `names`, in the order of the net, by default of all.

    Raise UnknownLayerError for other names, and where `end` is before `start`.
    """
    for name in (start, end):
        if name is not None and name not in names:
            raise UnknownLayerError(f"no layer '{name}'{near(name, names, 'layers')}")
    first, last = names.index(start) if start else 0, names.index(end) if end else len(names) - 1
    if first > last:
        raise UnknownLayerError(f"layer '{names[first]}' is after '{names[last]}' in the net: exchange start and end")
    return first, last


def check_numbers(first: int, last: int, count: int) -> None:
    """Raise UnknownLayerError unless both are numbers of the `count` layers."""
    if first < 0 or last >= count:
        raise UnknownLayerError(f"layers {first} to {last}; the net has layers 0 to {count - 1}")


def _repeats(given: Shape, shape: Shape) -> bool:
    """Return whether numpy repeats an array of one shape to the other, of as many rows."""
    try:
        return given[:1] == shape[:1] and np.broadcast_shapes(given, shape) == shape
    except ValueError:
        return False
