"""Names that only this project used have given way to the field's: CONTRIBUTING.md has the table of words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOW = {
    "lasting": "retried, persistent",
    "regardless": "ignoring_loss",
    "noticing": "raises_rank_lost",
    "wishes": "requests, asked",
    "recruits": "fills_places",
    "stand_by": "standby",
    "speaks": "reports_losses",
    "Carried": "StateTransfer",
    "former": "earlier, replaced, before",
    "acted": "handled",
    "granting": "granted",
    "StallWatch": "Heartbeats",
    "HostWatch": "ProcessTable",
    "Beacon": "Datagrams",
    "GivingUp": "Hanging",
}


def names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module defines or uses."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname"):
            if isinstance(found := getattr(node, field, None), str):
                yield found


@pytest.mark.parametrize("package", ["collectives", "readers", "scaffe"])
def test_no_name_is_a_word_that_was_replaced(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}; write {NOW[name]}"
        for path in (ROOT / package).rglob("*.py")
        for name in names(ast.parse(path.read_text()))
        if name in NOW
    ]
    assert found == []


def test_it_finds_each_kind_of_name() -> None:
    text = "import a as speaks\nclass Carried:\n  def lasting(self, former):\n    self.acted = regardless()"
    assert NOW.keys() & {*names(ast.parse(text))} == {"speaks", "Carried", "lasting", "former", "acted", "regardless"}
