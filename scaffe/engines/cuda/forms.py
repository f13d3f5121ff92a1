"""Forms: blobs that lie channels last, in bfloat16 or float32, and how layers read and write them.

Kernels read and write these blobs from layer to layer, values and gradients. Everything else sees float32 in C order:
`Blob.array` and `Blob.data` convert. Which blobs lie so, typed_blobs.py decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scaffe.blob import Blob, Form, Shape, Values
from scaffe.engines.cuda.launcher import Launcher
from scaffe.engines.cuda.layouts import BF16, channels_first, channels_last

TYPES = {"bf16": BF16, "tf32": np.dtype(np.float32)}  # of blobs that lie channels last, by the products' numbers


class ChannelsLast(Form):
    """Values of a blob (N x C x ...) in `array` (N x ... x C), float32 or the bits of bfloat16."""

    def __init__(self, engine: Launcher, array: Any):
        self.engine, self.array = engine, array

    def store(self, array: Any) -> None:
        channels_first(self.engine, self.array, array)

    def load(self, array: Any) -> None:
        channels_last(self.engine, array, self.array)


def last_shape(shape: Shape) -> Shape:
    """Return the shape of the array that holds a blob of `shape` channels last."""
    return (shape[0], *shape[2:], shape[1])


class BlobValues(NamedTuple):
    """A blob's values or its gradient."""

    blob: Blob
    values: Values

    @property
    def is_last(self) -> bool:
        """Whether it lies channels last."""
        return self.values.home is not None

    @property
    def plain(self) -> Any:
        """The plain array: float32 in C order, converted if it lies channels last."""
        return self.values.plain(self.blob.shape, self.blob.xp)


def data(blob: Blob) -> BlobValues:
    """Return a blob's values."""
    return BlobValues(blob, blob.values)


def diff(blob: Blob) -> BlobValues:
    """Return a blob's gradient."""
    return BlobValues(blob, blob.diff_values)


def arrays(read: Sequence[BlobValues], written: Sequence[BlobValues] = ()) -> tuple[bool, list[Any]]:
    """Return the arrays of what a layer reads and overwrites, in that order, and whether they lie channels last.

    They do where all parts lie so: then each has the shape N x ... x C, and is float32 or bfloat16 (BF16). Otherwise
    each is the plain array. Not for parts to be added to.
    """
    if not all(part.is_last for part in (*read, *written)):
        given = [part.plain for part in read]
        for part in written:
            if part.values.deferred:
                part.values.overwritten()
        return False, given + [part.plain for part in written]
    return True, [reading(part) for part in read] + [writing(part) for part in written]


def reading(part: BlobValues) -> Any:
    """Return the array to read of one part, channels last where it lies so, else plain."""
    if not isinstance(part.values.home, ChannelsLast):
        return part.plain
    part.values.settle()
    return part.values.home.array


def writing(part: BlobValues) -> Any:
    """Return the array to overwrite of one part, channels last where it lies so, else plain."""
    if part.values.deferred:
        part.values.overwritten()
    if not isinstance(part.values.home, ChannelsLast):
        return part.plain
    part.values.overwritten()
    return part.values.home.array


def kind(array: Any) -> str:
    """Return the ending of the names of kernels for an array's type: "" for float32, "_bf16" for bfloat16."""
    return "_bf16" if array.dtype == BF16 else ""
