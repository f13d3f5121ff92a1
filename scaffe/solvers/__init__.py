"""Update rules, one a file, and the learning rate policies.

Importing this package imports all its modules, and each rule registers its solver type.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from scaffe.blobs.packed import PackedParameters
from scaffe.engine import Engine
from scaffe.errors import ScaffeError
from scaffe.near import near
from scaffe.proto import SolverParameter

if TYPE_CHECKING:
    from scaffe.solvers.rule import Rule

_rules: dict[str, type[Rule]] = {}
_fast: dict[tuple[str, str], Callable[..., Rule]] = {}  # an engine's rules, by solver type and engine


def register(rule: type[Rule], engine: str = "") -> None:
    """Register `rule` as the solver type `rule.kind`, or as the form of that type for `engine`.

    Raise ValueError for a type that another module has registered.
    """
    if engine:
        _fast[rule.kind, engine] = rule
        return
    first = _rules.setdefault(rule.kind, rule)
    if first.__module__ != rule.__module__:
        raise ValueError(f"{first.__module__} and {rule.__module__} both register solver type '{rule.kind}'")
    _rules[rule.kind] = rule


def kinds() -> list[str]:
    """Return the registered solver types."""
    return sorted(_rules)


def create(param: SolverParameter, packed: PackedParameters, engine: Engine | None = None) -> Rule:
    """Return the rule of the solver's type, in the engine's form if it has one.

    Raise ScaffeError for an unknown type.
    """
    kind = param.type
    if kind not in _rules:
        raise ScaffeError(f"unknown solver type '{kind}'{near(kind, kinds(), 'known types')}")
    if engine and (kind, engine.name) in _fast:
        return _fast[kind, engine.name](param, packed, engine)
    return _rules[kind](param, packed)


def discover() -> None:
    """Import each module of this package."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


discover()
