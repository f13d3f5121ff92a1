"""StridedCopies: parts of one array copied or added to parts of another, by a reorder of the library for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.blob import Shape
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive, reorder
from scaffe.engines.onednn.sgemm import MadeFor

Part = tuple[Shape, Shape, Shape]  # the shape, the strides in the source and those in the target


class StridedCopies:
    """Copies of one part after the other, each at a pair of offsets in the source and in the target; all in elements.

    With `add` they are added to the target. Parts may overlap each other, but not themselves.
    """

    def __init__(self, engine: Onednn, part: Part, offsets: Sequence[tuple[int, int]], add: bool = False):
        shape, *strides = part
        source, target = (engine.strided(shape, one) for one in strides)
        nowhere = np.empty(0, np.float32)
        pairs = [(Memory(engine, source, nowhere), Memory(engine, target, nowhere)) for _ in offsets]
        self._pairs, self._offsets = pairs, offsets
        self._primitives = [reorder(*pair, add=add) for pair in pairs]
        self._at = MadeFor(self._point)

    def run(self, source: np.ndarray, target: np.ndarray) -> None:
        """Copy or add all parts, between arrays that `in_memory` takes."""
        for primitive in self._at(source, target):
            primitive.run()

    def _point(self, source: np.ndarray, target: np.ndarray) -> list[Primitive]:
        flat, into = in_memory(source), in_memory(target)
        for (one, other), (start, place) in zip(self._pairs, self._offsets, strict=True):
            one.point(flat[start:])
            other.point(into[place:])
        return self._primitives


def in_memory(values: np.ndarray) -> np.ndarray:
    """Return values flat, as they lie in memory: in C order, or as a user's N x C x H x W with channels last."""
    return (values if values.flags.c_contiguous else values.transpose(0, 2, 3, 1)).reshape(-1)
