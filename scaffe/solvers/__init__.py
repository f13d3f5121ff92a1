"""Update rules, one a file, and the learning rate policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffe.errors import ScaffeError
from scaffe.packed import PackedParameters
from scaffe.proto import SolverParameter

if TYPE_CHECKING:
    from scaffe.solvers.rule import Rule

_rules: dict[str, type[Rule]] = {}


def register(rule: type[Rule]) -> None:
    """Let solver files name `rule` by its kind."""
    _rules[rule.kind] = rule


def kinds() -> list[str]:
    """Return the types of solvers that there are."""
    return sorted(_rules)


def create(param: SolverParameter, packed: PackedParameters) -> Rule:
    """Return the rule that the solver file names. Raise ScaffeError if its type is unknown."""
    kind = param.type
    if kind not in _rules:
        raise ScaffeError(f"unknown solver type '{kind}'; known types: {' '.join(kinds())}")
    return _rules[kind](param, packed)


from scaffe.solvers import adadelta, adagrad, adam, lars, nesterov, rmsprop, sgd  # noqa: E402, F401  registers the rules
