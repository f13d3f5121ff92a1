"""The benchmarks: they start, they use public names alone, and no file of theirs hides a module of another package."""

from __future__ import annotations

import ast
import json
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
HELP = """
import json, os, runpy, sys, tempfile
import numpy, scaffe.commands.train, scaffe.engines.onednn
torch = sys.argv[1] == "torch" and __import__("torch")
said = {}
for path in sys.argv[1 + bool(torch):]:
    with tempfile.TemporaryFile("w+") as file:
        if (child := os.fork()) == 0:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            sys.argv, sys.path[0] = [path, "--help"], os.path.dirname(path)
            try:
                runpy.run_path(path, run_name="__main__")
            except SystemExit as end:
                print(end.code if isinstance(end.code, str) else "", file=sys.stderr)
            sys.stdout.flush()
            os._exit(0)  # PyTorch takes longer to end than to import
        os.waitpid(child, 0)
        file.seek(0)
        said[path] = file.read()
print(json.dumps(said))
"""
pytestmark = pytest.mark.mpi_skip


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What each program says with --help: processes of their own, forked once the slow packages are imported."""
    needed = [re.search("^(import|from) torch", path.read_text(), re.MULTILINE) for path in STARTED]
    torch = find_spec("torch") is not None
    paths = [str(path) for path, needs in zip(STARTED, needed, strict=True) if torch or not needs]
    path_of_modules = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path_of_modules, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", HELP, *["torch"] * torch, *paths]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("path", STARTED, ids=lambda path: path.stem)
def test_each_starts_and_says_how_to_use_it(path: Path, said: dict[str, str]) -> None:
    if str(path) not in said:
        pytest.skip("no PyTorch")
    assert USAGE.get(path.stem, f"usage: {path.name}") in said[str(path)]


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
