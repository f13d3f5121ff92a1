"""The ops that `scaffe import-onnx` reads, a group a module; importing this package imports all, which register."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules


def discover() -> None:
    """Import each module of this package."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
