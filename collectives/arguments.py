"""Arguments: checks of the arrays that a collective is called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.errors import ArgumentError

if TYPE_CHECKING:
    from collectives.execution.device.device import Device


def problem_of(attempt: Callable[[], object]) -> str:
    """Return the text of the ArgumentError that `attempt` raises, "" for none."""
    try:
        attempt()
    except ArgumentError as error:
        return str(error)
    return ""


def check_array(name: str, array: Any, written: bool, device: Callable[[], Device] | None) -> None:
    """Raise ArgumentError for an object that can't be sent, or written into, where it lies."""
    if device is None and not isinstance(array, np.ndarray):
        raise ArgumentError(f"{name} must be a numpy array, got {type(array).__name__}")
    if device is not None and not device().holds(array):
        raise ArgumentError(f"{name} must be a CuPy array on {device().name}, got {type(array).__name__}")
    if not array.flags.c_contiguous:
        raise ArgumentError(f"{name} must be contiguous, got shape {array.shape} with strides {array.strides}")
    if device is None and written and not array.flags.writeable:
        raise ArgumentError(f"{name} is read-only, but the result goes there")
