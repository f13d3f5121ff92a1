"""The house stands: no import circle, and no import from a higher floor. Imports for types and in functions count."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "collectives", "readers", "scaffe"
ROW = re.compile(r"\| \d+ \| (.+?) \|")


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


def floors() -> dict[str, int]:
    """Return the floors of modules and packages, as the tables of docs/architecture.md have them; the lowest is 1."""
    found: dict[str, int] = {}
    for line in (ROOT / "docs/architecture.md").read_text().splitlines():
        if row := ROW.match(line):
            for name in re.findall(r"`([\w.]+)`", row[1]):
                assert name not in found, f"{name} stands on two floors"
                found[name] = int(line.split("|")[1])
    return found


def floor(name: str, table: dict[str, int]) -> int:
    """Return the floor of a module: its own, or that of the nearest package around it."""
    parts = name.split(".")
    known = (".".join(parts[:n]) for n in range(len(parts), 1, -1))
    return next((table[place] for place in known if place in table), 0)


def test_no_modules_import_each_other():
    assert len(graph()) > 300
    list(TopologicalSorter(graph()).static_order())  # raises CycleError, which names the circle


def test_every_module_stands_on_a_floor():
    table = floors()
    assert [name for name in table if name not in modules()] == []
    missing = [name for name in modules() if "." in name and name.split(".")[0] != "readers" and not floor(name, table)]
    assert missing == []


def test_no_module_imports_from_a_higher_floor():
    table = floors()
    upwards = [
        f"{name} -> {other}"
        for name, others in graph().items()
        for other in others
        if floor(name, table) and floor(other, table) > floor(name, table)
    ]
    assert upwards == []
