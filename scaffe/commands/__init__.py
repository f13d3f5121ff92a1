"""The commands of `scaffe`: a module a command, named after it.

A module with a function `add` is a command, and is found by itself; `RANK`, if it has one, is its place in `--help`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

LAST = 100  # the rank of a module without one


def modules(words: Sequence[str] = ()) -> list[ModuleType]:
    """Return the modules of all commands, in the order of `--help`; that of one alone whose name is the first word.

    To import the others takes a sixth of the time in which a rank of a training starts.
    """
    names = [one.name for one in iter_modules(__path__)]
    first = words[0].replace("-", "_") if words else ""
    return (_commands([first]) if first in names else []) or _commands(names)


def _commands(names: Sequence[str]) -> list[ModuleType]:
    """Return those of these modules that are commands."""
    found = [import_module(f"{__name__}.{name}") for name in names]
    return sorted((one for one in found if hasattr(one, "add")), key=lambda one: getattr(one, "RANK", LAST))
