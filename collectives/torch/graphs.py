"""Graphs: keep torch.compile from tracing what a collective does.

Where a compiled program calls DistributedDataParallel, PyTorch would look at each function of ours that its C++ calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any

import torch


def outside_graphs(kind: type) -> type:
    """Make what PyTorch calls of a class run as it is, also below a compiled program; return the class."""
    for base in reversed(kind.__mro__):
        for name, method in vars(base).items() if base.__module__.startswith(__package__) else ():
            if isinstance(method, FunctionType) and (not name.startswith("_") or name in ALIASES) and name not in OURS:
                setattr(kind, name, _as_it_is(method))
    return kind


def _as_it_is(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that PyTorch's compiler doesn't look into."""

    @cache
    def disabled() -> Callable[..., Any]:
        found: Callable[..., Any] = torch.compiler.disable(method)
        return found

    @wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        run = disabled() if COMPILER in sys.modules else method  # which takes long to import
        return run(*given, **named)

    return call


COMPILER = "torch._dynamo"
ALIASES = "_allgather_base", "_reduce_scatter_base"
OURS = "attempt", "end", "is_late", "breaks"  # which PyTorch doesn't call
