"""Modules with a line changed, to see whether a test tells."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any


def changed(module: ModuleType, old: str, new: str) -> dict[str, Any]:
    """Return what a module would define if `old`, which stands in it once, were `new`."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{module.__name__} has {source.count(old)} times {old!r}"
    names: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(old, new), inspect.getfile(module), "exec"), names)
    return names
