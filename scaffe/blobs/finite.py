"""Checks for NaN and infinities: a net that has diverged is neither trained on nor written to a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any, Protocol

import numpy as np

from scaffe.errors import SnapshotError


class _CheckedBlob(Protocol):
    @property
    def data(self) -> Any: ...

    @property
    def diff(self) -> Any: ...


class _CheckedLayer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def blobs(self) -> Iterable[_CheckedBlob]: ...


class _PackedParameter(Protocol):
    @property
    def layer(self) -> str: ...

    @property
    def index(self) -> int: ...


class _Packed(Protocol):
    @property
    def slices(self) -> Sequence[slice]: ...

    @property
    def parameters(self) -> Sequence[_PackedParameter]: ...


@np.errstate(all="ignore")
def all_finite(values: Any) -> bool:
    """Return whether a float32 array, on the host or a device, holds neither NaN nor an infinity.

    The sum of its squares shows that in one pass. Only if that sum is not finite is each value checked.
    """
    flat = values.reshape(-1)
    return has_finite_squares(flat) or bool(np.isfinite(flat).all())


def has_finite_squares(flat: Any) -> bool:
    """Return whether the sum of a flat array's squares is finite, and so each value. numpy may warn where it is not."""
    return isfinite(float(flat.dot(flat)))


def first_faulty(packed: _Packed, flat: Any, part: slice) -> int | None:
    """Return the index of the first parameter in `part` of the flat array that is not finite, or None."""
    if all_finite(flat[part]):
        return None
    there = (i for i, where in enumerate(packed.slices) if part.start <= where.start and where.stop <= part.stop)
    return next((i for i in there if not all_finite(flat[packed.slices[i]])), None)


def check_layers(layers: Iterable[_CheckedLayer], diffs: bool) -> None:
    """Raise SnapshotError unless all parameters, and with `diffs` all their gradients, are finite."""
    for layer in layers:
        for i, blob in enumerate(layer.blobs):
            if not all_finite(blob.data):
                raise _not_written(layer.name, i, "data")
            if diffs and not all_finite(blob.diff):
                raise _not_written(layer.name, i, "diff")


def check_history(packed: _Packed, history: Iterable[Any]) -> None:
    """Raise SnapshotError unless a solver's history, flat arrays of the parameters' layout, is finite."""
    for flat in history:
        if (i := first_faulty(packed, flat, slice(0, flat.size))) is not None:
            raise _not_written(packed.parameters[i].layer, packed.parameters[i].index, "history")


def _not_written(layer: str, index: int, what: str) -> SnapshotError:
    return SnapshotError(
        f"layer '{layer}': the {what} of parameter {index} is not finite, so no file is written; restart from an older "
        "snapshot with a lower base_lr"
    )
