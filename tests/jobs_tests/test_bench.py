"""The benchmarks: they start, they use public names alone, and no file of theirs hides a module of another package."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "jobs/bench").glob("*.py"))
MODULES = {path.stem for path in SCRIPTS}  # a script's folder comes first on sys.path
STARTED = [path for path in SCRIPTS if '__name__ == "__main__"' in path.read_text()]
USAGE = {
    "loader": "usage: loader.py FILE",
    "waiting": "usage: waiting.py LMDB",
    "rank": "rank.py '",
    "memory": "usage: memory.py ours",
}
pytestmark = pytest.mark.mpi_skip


@pytest.mark.parametrize("path", STARTED, ids=lambda path: path.stem)
def test_each_starts_and_says_how_to_use_it(path: Path) -> None:
    if re.search("^(import|from) torch", path.read_text(), re.MULTILINE):
        pytest.importorskip("torch")
    command = [sys.executable, str(path), "--help"]
    path_of_modules = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path_of_modules, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert USAGE.get(path.stem, f"usage: {path.name}") in run.stdout + run.stderr, run.stderr


def test_no_file_hides_a_module_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ROOT / "jobs/bench"
    monkeypatch.setattr(sys, "path", [place for place in sys.path if Path(place).resolve() != folder])
    for name in MODULES - set(sys.modules):
        spec = find_spec(name)
        hidden = spec is not None and spec.has_location  # a folder of tests has none
        assert name not in sys.stdlib_module_names and not hidden, name


DOCUMENTED = {"os._exit", "cell._replace"}  # by Python, although they begin so


@pytest.mark.parametrize("path", sorted((ROOT / "jobs").rglob("*.py")), ids=lambda path: path.stem)
def test_each_uses_public_names_alone(path: Path) -> None:
    tree = ast.parse(path.read_text())
    private = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr) and ast.unparse(node.value) != "self"
    ]
    imported = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert [name for name in private + imported if name not in DOCUMENTED] == []
