"""The commands of `scaffe`: a module a command, named after it.

A module with a function `add` is a command, and is found by itself; `RANK`, if it has one, is its place in `--help`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

LAST = 100  # the rank of a module without one


def modules() -> list[ModuleType]:
    """Return the modules of all commands, in the order of `--help`."""
    found = [import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__)]
    return sorted((one for one in found if hasattr(one, "add")), key=lambda one: getattr(one, "RANK", LAST))
