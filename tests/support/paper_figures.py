"""The modules of the papers' figures (jobs/papers)."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT / "jobs/papers"), str(ROOT / "jobs/bench")]
MODULES = sorted(path.stem for path in (ROOT / "jobs/papers").glob("*.py"))


def module(name: str) -> ModuleType:
    """Return a module of jobs/papers or jobs/bench, which the fixture `figures_path` has on sys.path."""
    return importlib.import_module(name)
