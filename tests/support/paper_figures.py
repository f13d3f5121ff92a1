"""The modules of the papers' figures (jobs/papers), and their checks' verdicts."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from scaffe import papers

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT / "jobs/papers"), str(ROOT / "jobs/bench")]
MODULES = sorted(path.stem for path in (ROOT / "jobs/papers").glob("*.py"))


def module(name: str) -> ModuleType:
    """Return a module of jobs/papers or jobs/bench, which the fixture `figures_path` has on sys.path."""
    return importlib.import_module(name)


def verdicts(figure: ModuleType, measured: dict | None = None, modelled: dict | None = None) -> dict[str, str]:
    """Return the verdict of each check of a figure, by what it checks; `modelled` where its model takes long."""
    found = measured or {}
    checks = figure.FIGURE.check(found, figure.FIGURE.model(found) if modelled is None else modelled)
    return {check.what: check.verdict for check in checks}


def missed(figure: ModuleType, measured: dict, modelled: dict | None = None) -> list[str]:
    """Return what the checks that are missed begin with, up to a colon."""
    found = verdicts(figure, measured, modelled)
    return [what.partition(":")[0] for what, verdict in found.items() if verdict == papers.NOT_REPRODUCED]
