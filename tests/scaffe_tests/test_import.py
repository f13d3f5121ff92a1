"""What importing scaffe gives, and what it leaves until it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import scaffe


def modules_after(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has imported after the statement."""
    program = f"{statement}; import sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_import_scaffe_imports_no_other_package() -> None:
    packages = {"numpy", "google.protobuf", "PIL", "tqdm", "threadpoolctl", "lmdb", "mpi4py", "collectives", "readers"}
    assert not packages & modules_after("import scaffe")


def test_a_solver_imports_no_pictures_no_bar_and_no_mpi() -> None:
    given = modules_after("from scaffe import Solver")
    assert "scaffe.net" in given and not {"PIL", "tqdm", "threadpoolctl", "mpi4py"} & given


def test_a_training_imports_no_bar_and_no_pycaffe() -> None:
    given = modules_after("import scaffe.commands.train")
    assert "scaffe.training.solver" in given and not {"tqdm", "scaffe.pycaffe"} & given


def test_no_search_for_garbage_passes_over_the_modules_of_a_command() -> None:
    told = "print(gc.isenabled(), gc.get_freeze_count() > 10_000)"
    program = f"import gc, sys; sys.argv[1:] = ['inspect-db', '']; from scaffe.__main__ import main; main(); {told}"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stdout == "True True\n", ran.stderr


def test_public_names_are_there_when_asked_for() -> None:
    assert set(scaffe.__all__) <= set(dir(scaffe))
    for name in scaffe.__all__:
        assert name in ("TEST", "TRAIN", "io") or getattr(scaffe, name).__name__ == name
    assert scaffe.Net.__module__ == "scaffe.net.net" and scaffe.io.__name__ == "scaffe.pictures.io"
    assert "scaffe.layers" in modules_after("import scaffe; scaffe.layers")
    with pytest.raises(AttributeError, match="module 'scaffe' has no attribute 'Nett'"):
        _ = scaffe.Nett
