"""The house stands: no import circle, and none from a later row of the tables in docs/architecture.md.

Imports for types and in functions count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "collectives", "readers", "scaffe"


@cache
def modules() -> dict[str, Path]:
    """Return the source files of all modules, by dotted name."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def imported(name: str) -> Iterator[str]:
    """Iterate over the modules of ours that a module imports, anywhere in its source."""
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (full if full in modules() else node.module for full in names)


@cache
def graph() -> dict[str, set[str]]:
    """Return what each module imports."""
    return {name: set(imported(name)) - {name} for name in modules()}


@cache
def floors() -> dict[str, int]:
    """Return the floor of each module and folder that the tables of docs/architecture.md name, 1 for the first row."""
    found: dict[str, int] = {}
    package, floor = "", 0
    for line in (ROOT / "docs/architecture.md").read_text().splitlines():
        if line.startswith("## "):
            heading = re.fullmatch(r"## The floors of `(\w+)/`", line)
            package, floor = heading[1] if heading else "", 0
        elif package and line.startswith("| `"):
            floor += 1
            for place in re.findall(r"`([\w/]+?)(?:\.py|/)`", line.split("|")[1]):
                name = f"{package}.{place.replace('/', '.')}"
                assert found.setdefault(name, floor) == floor, f"{package}/{place} stands on two floors"
    return found


def floor(name: str) -> int:
    """Return a module's floor, 0 where the tables name neither it nor a folder of it; the nearest name counts."""
    parts = name.split(".")
    places = (".".join(parts[:count]) for count in range(len(parts), 1, -1))
    return next((floors()[place] for place in places if place in floors()), 0)


def same_table(one: str, other: str) -> bool:
    """Return whether both stand on floors of one package."""
    return one.split(".")[0] == other.split(".")[0] and floor(one) > 0


def test_no_modules_import_each_other():
    assert len(graph()) > 300
    list(TopologicalSorter(graph()).static_order())  # raises CycleError, which names the circle


def test_every_module_stands_on_a_floor():
    assert [name for name in floors() if name not in modules()] == []
    assert [name for name in modules() if "." in name and not name.startswith("readers") and not floor(name)] == []


def test_no_module_imports_from_a_later_row():
    pairs = [(name, other) for name, others in graph().items() for other in others if same_table(name, other)]
    assert [f"{name} -> {other}" for name, other in pairs if floor(other) > floor(name)] == []
