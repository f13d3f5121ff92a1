"""Tests are found where one looks for them: by the names of what is registered, in folders that mirror the packages."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from runpy import run_path

import pytest

from collectives.schedules.registry import algorithms
from readers import database
from scaffe import commands, layers, solvers
from scaffe.layers import layer
from scaffe.parallel.instances import gathers
from scaffe.parallel.instances.gathers import gather
from scaffe.parallel.workflows.workflow import registered

TESTS = Path(__file__).resolve().parents[1]
MIRRORS = {"scaffe_tests": "scaffe", "collectives_tests": "collectives", "readers_tests": "readers"}


def without_a_test(names: Iterable[str]) -> list[str]:
    there = {path.stem for path in TESTS.rglob("test_*.py")}
    return sorted(name for name in names if f"test_{name}" not in there)


def file_of(kind: type) -> str:
    """Return the name of the file that defines a class."""
    return kind.__module__.rpartition(".")[2]


def test_each_layer_type_has_a_test_of_its_files_name() -> None:
    types = layers.known_types()
    assert "ReLU" in types
    assert without_a_test(file_of(layer._types[kind][layer.REFERENCE]) for kind in types) == []


def test_each_solver_type_has_a_test_of_its_name() -> None:
    assert "SGD" in solvers.kinds()
    assert without_a_test(kind.lower() for kind in solvers.kinds()) == []


def test_each_workflow_has_a_test_of_its_files_name() -> None:
    assert "SC-B" in registered()
    assert without_a_test(file_of(workflow) for workflow in registered().values()) == []


def test_each_gather_has_a_test_of_its_name() -> None:
    gathers.discover()
    assert "tree" in gather.registered()
    assert without_a_test(gather.registered()) == []


def test_each_command_has_a_test_of_its_files_name() -> None:
    files = {module.__name__.rpartition(".")[2] for module in commands.modules()}
    assert "train" in files
    assert without_a_test(files) == []


def test_each_kind_of_database_has_a_test_of_its_files_name() -> None:
    files = {file_of(kind) for kind in database.kinds()}
    assert "lmdb_reader" in files
    assert without_a_test(files) == []


def test_each_algorithm_is_among_those_that_the_property_tests_check() -> None:
    """A test of its name says what is its own: test_check.py holds for all that are registered, on any ranks."""
    checked = set(run_path(str(TESTS / "collectives_tests/simulation/test_check.py"))["KINDS"])
    assert len(algorithms()) > 1
    for algorithm in algorithms():
        assert {(verb, name) for verb in algorithm.verbs for name in algorithm.samples} <= checked, algorithm.name


def does_something(module: Path) -> bool:
    """Return whether a module has a function with more than a docstring; constants and protocols have none."""
    functions = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.FunctionDef)]
    return any(len(one.body) > 1 or ast.get_docstring(one) is None for one in functions)


def test_each_module_of_collectives_has_a_test_of_its_name() -> None:
    """In the folder that mirrors the module's, or over ranks; one that begins with the package's name, anywhere.

    So has a module whose name another test has: test_device_plans.py is the one of device/plans.py.
    """
    package, there = TESTS.parent / "collectives", {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    anywhere, without = {path.name for path in there}, []
    modules = [one for one in package.rglob("*.py") if not one.name.startswith("__") and does_something(one)]
    for module in modules:
        own, folder = f"test_{module.name}", Path("collectives_tests") / module.parent.relative_to(package)
        is_there = {folder / own, Path("mpi_tests") / own} & there
        if not is_there and f"test_{module.parent.name}_{module.name}" not in anywhere:
            without.append(str(module.relative_to(package)))
    assert len(modules) > 50 and without == []


@pytest.mark.parametrize("tests", MIRRORS)
def test_folders_of_tests_are_folders_of_their_package(tests: str) -> None:
    package = TESTS.parent / MIRRORS[tests]
    folders = {path.parent.relative_to(TESTS / tests) for path in (TESTS / tests).rglob("test_*.py")}
    assert [str(folder) for folder in folders if not (package / folder).is_dir()] == []


def test_what_is_no_test_stands_in_support() -> None:
    others = {str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if not path.name.startswith("test_")}
    assert {name for name in others if not name.startswith("support/")} == {"conftest.py", "fuzz.py"}


def test_no_two_files_have_one_name() -> None:
    """pytest imports tests and helpers as modules without a package."""
    names = [path.name for path in TESTS.rglob("*.py")]
    assert sorted(names) == sorted(set(names))
