"""Readers: the functions that read ONNX ops as layers, by op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.errors import ScaffeError
from scaffe.onnx.grown_net import GrownNet

Value = str | np.ndarray  # a blob's name, or a constant
Results = str | Sequence[str]

# A reader adds an op's layers; it returns the blob of its result, or those of several.
Reader = Callable[[GrownNet, "Op"], Results]

_readers: dict[str, Reader] = {}


class Unreadable(ScaffeError):
    """What an op asks for that no layer does; the error names the node later."""


@dataclass(frozen=True)
class Op:
    """A node of a model: its inputs, None where one is left out, its attributes, and how many results are used."""

    kind: str
    inputs: Sequence[Value | None]
    attributes: Mapping[str, Any]
    used: Sequence[bool]
    opset: int

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def given(self, index: int) -> bool:
        """Return whether an input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def constant(self, index: int) -> np.ndarray | None:
        """Return a constant input, None where it is left out. Raise Unreadable for one that is computed."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if isinstance(value, str):
            raise Unreadable(f"its input {index} is computed, where a layer needs a constant")
        return value

    def needed(self, index: int) -> np.ndarray:
        """Return a constant input that must be there."""
        value = self.constant(index)
        if value is None:
            raise Unreadable(f"its input {index} is missing")
        return value

    def blob(self, layers: GrownNet, index: int = 0) -> str:
        """Return the blob of an input; a constant becomes one that isn't learned."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise Unreadable(f"its input {index} is missing")
        return value if isinstance(value, str) else layers.parameter(value)

    def numbers(self, index: int, name: str) -> list[int] | None:
        """Return whole numbers that are an input, or in earlier opsets an attribute."""
        if self.given(index):
            return [int(value) for value in self.needed(index).reshape(-1)]
        found = self.get(name)
        return None if found is None else list(found)


def reads(*kinds: str) -> Callable[[Reader], Reader]:
    """Register the decorated function as the reader of ops."""

    def register(reader: Reader) -> Reader:
        _readers.update(dict.fromkeys(kinds, reader))
        return reader

    return register


def readers() -> dict[str, Reader]:
    """Return the readers by op."""
    return dict(_readers)
