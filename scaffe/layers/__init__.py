"""The layers, one a file; importing this package imports all its modules, and each registers its layer type.

For nets written in Python, each layer type is also a function here, as in pycaffe: see scaffe.spec.netspec.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from scaffe.errors import UnknownNameError
from scaffe.layers.layer import known_types
from scaffe.near import near
from scaffe.spec.netspec import layer_function


def discover() -> None:
    """Import each module of this package."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


discover()


def __getattr__(name: str) -> Callable[..., Any]:
    """Return the function that adds a layer of type `name` to a net, given its bottoms and fields.

    Raise UnknownNameError for a name that is no layer type.
    """
    if name not in known_types():
        raise UnknownNameError(f"no layer type is called '{name}'{near(name, known_types(), 'known types')}")
    return layer_function(name)


def __dir__() -> list[str]:
    return [*globals(), *known_types()]
