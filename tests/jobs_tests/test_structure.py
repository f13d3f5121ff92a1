from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BELOW_THE_NET = {"net", "graph", "packed", "solvers", "training", "files", "parallel", "monitor", "timeline", "tools"}
BELOW_THE_NET |= {"cli", "commands"}


def imports(package: str) -> Iterator[tuple[str, str]]:
    """Yield (file, dotted name) for each import in a package's own source."""
    for path in sorted((ROOT / package).rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.Import):
                yield from ((str(path), alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                yield from ((str(path), f"{node.module}.{alias.name}") for alias in node.names)


def offenders(package: str, forbidden: set[str]) -> list[tuple[str, str]]:
    return [(file, name) for file, name in imports(package) if any(f"{name}.".startswith(f"{f}.") for f in forbidden)]


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("collectives", {"scaffe", "readers"}),
        ("readers", {"scaffe", "collectives", "mpi4py"}),
        ("scaffe/layers", {"mpi4py", *(f"scaffe.{room}" for room in BELOW_THE_NET)}),
        ("scaffe/solvers", {"mpi4py", *(f"scaffe.{room}" for room in BELOW_THE_NET - {"solvers", "packed"})}),
        ("scaffe/proto", {"mpi4py", "scaffe.layers", *(f"scaffe.{room}" for room in BELOW_THE_NET)}),
    ],
)
def test_no_package_imports_what_stands_above_it(package: str, forbidden: set[str]) -> None:
    assert list(imports(package)), f"no imports found in {package}"
    assert offenders(package, forbidden) == []


def test_mpi_is_opened_in_scaffe_parallel_alone() -> None:
    places = {file for file, name in offenders("scaffe", {"mpi4py"})}
    assert places and all(Path(file).parent.name == "parallel" for file in places)


def test_a_workflows_name_stands_in_its_own_file_alone() -> None:
    places = {
        (str(path.relative_to(ROOT)), node.value)
        for package in ("collectives", "readers", "scaffe")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.Constant) and re.fullmatch(r"SC-\w+", str(node.value))
    }
    room = "scaffe/parallel/workflows"
    assert places == {(f"{room}/sc_b.py", "SC-B"), (f"{room}/sc_ob.py", "SC-OB"), (f"{room}/sc_obr.py", "SC-OBR")}


def test_every_package_that_is_imported_is_a_requirement() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    options = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    required = {line.strip() for option in options for line in option.splitlines()}
    known = {"PIL": "pillow", "google": "protobuf", "sklearn": "scikit-learn"}
    known |= {"cupy": "cupy-cuda13x", "cudnn": "nvidia-cudnn-frontend"}
    for package in ("collectives", "readers", "scaffe"):
        for file, name in imports(package):
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names | {"collectives", "readers", "scaffe"}:
                wanted = known.get(top, top)
                assert any(r == wanted or r.startswith((f"{wanted}>", f"{wanted}=", f"{wanted}<")) for r in required), (
                    file,
                    top,
                )


def test_every_test_below_mpi_tests_runs_under_mpirun() -> None:
    for path in (ROOT / "tests/mpi_tests").glob("test_*.py"):
        assert "pytest.mark.mpi" in path.read_text(), f"{path} has no pytestmark = pytest.mark.mpi"
