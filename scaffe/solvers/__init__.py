"""Update rules, one a file, and the learning rate policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scaffe.errors import ScaffeError
from scaffe.packed import PackedParameters
from scaffe.proto import SolverParameter

if TYPE_CHECKING:
    from scaffe.solvers.rule import Rule

_rules: dict[str, type[Rule]] = {}
_fast: dict[tuple[str, str], Callable[..., Rule]] = {}  # by kind and engine


def register(rule: type[Rule], engine: str = "") -> None:
    """Let solver files name `rule` by its kind; `engine` is whose form of that kind it is."""
    if engine:
        _fast[rule.kind, engine] = rule
    else:
        _rules[rule.kind] = rule


def kinds() -> list[str]:
    """Return the types of solvers that there are."""
    return sorted(_rules)


def create(param: SolverParameter, packed: PackedParameters, engine: Any = None) -> Rule:
    """Return the rule that the solver file names, in the engine's form if it has one.

    Raise ScaffeError if its type is unknown.
    """
    kind = param.type
    if kind not in _rules:
        raise ScaffeError(f"unknown solver type '{kind}'; known types: {' '.join(kinds())}")
    if engine and (kind, engine.name) in _fast:
        return _fast[kind, engine.name](param, packed, engine)
    return _rules[kind](param, packed)


from scaffe.solvers import adadelta, adagrad, adam, lars, nesterov, rmsprop, sgd  # noqa: E402, F401  registers the rules
