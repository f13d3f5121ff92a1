"""Graph: the ops of an ONNX model while it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.onnx.library import library


class Graph:
    """The ops and the constants so far. Values have names; those of a layer begin with its name."""

    def __init__(self) -> None:
        self.onnx = library()
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.layer = ""  # whose ops are added
        self._given: dict[Any, tuple[np.ndarray, str]] = {}  # constants and their names, by their memory
        self._names: set[str] = set()

    def reserve(self, names: Sequence[str]) -> None:
        """Keep names for blobs: no op or constant gets them."""
        self._names |= set(names)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an op; return the name of its value. An empty input is left out."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add an op of `count` values; return their names."""
        name = self._unused(kind)
        values = [self._unused(f"{kind}_value") if count > 1 else name for _ in range(count)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), values, name=name, **attributes))
        return values

    def constant(self, values: Any, what: str = "constant", dtype: Any = np.float32) -> str:
        """Add a constant; return its name. The same memory, such as shared weights, is kept once."""
        array = np.asarray(values, dtype)
        key = array.__array_interface__["data"][0], array.shape, array.strides
        if key not in self._given:
            self._given[key] = array, self._unused(what)  # the array is kept, so that no other takes its memory
            content = np.ascontiguousarray(array).reshape(array.shape)  # which has an axis where there was none
            self.initializers.append(self.onnx.numpy_helper.from_array(content, self._given[key][1]))
        return self._given[key][1]

    def numbers(self, values: Sequence[int] | int) -> str:
        """Add a constant of whole numbers, as shapes and axes are; return its name."""
        return self.constant(np.array(values, np.int64), "numbers", np.int64)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Give a value a shape, whose first axis is as long as the others leave: the batch may have any size."""
        if not shape or 0 in shape[1:]:
            return self.op("Reshape", x, self.numbers(list(shape)), allowzero=int(0 in shape))
        return self.op("Reshape", x, self.numbers([-1, *shape[1:]]))

    def affine(self, x: str, scale: float = 1, shift: float = 0) -> str:
        """Return scale x + shift."""
        if scale != 1:
            x = self.op("Mul", x, self.constant(scale))
        return self.op("Add", x, self.constant(shift)) if shift else x

    def mean(self, x: str, axes: Sequence[int], keepdims: bool = True) -> str:
        """Return the mean over axes."""
        return self.op("ReduceMean", x, axes=list(axes), keepdims=int(keepdims))

    def _unused(self, kind: str) -> str:
        """Return a name of no other value."""
        base = name = f"{self.layer}/{kind}"
        number = 1
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        return name
