"""jobs/caffe-alias: installed, plain `import caffe` gives scaffe.pycaffe, outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import multiprocessing
import sys

import caffe.io
from caffe import layers as L, params as P
from caffe.proto import caffe_pb2

import scaffe.pictures.io
import scaffe.pycaffe


def name_in_child(_):
    return caffe.__name__


if __name__ == "__main__":
    assert caffe is scaffe.pycaffe and caffe.io is scaffe.pictures.io
    assert caffe.Net is scaffe.Net and L.Pooling(pool=P.Pooling.MAX) and caffe_pb2.Datum()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(name_in_child, [0]))
"""

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(300)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip has installed the alias, from a copy, since building leaves files behind."""
    folder = tmp_path_factory.mktemp("alias")
    shutil.copytree(ROOT / "jobs/caffe-alias", folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", folder / "site", folder / "source"], check=True, capture_output=True)
    return folder / "site"


def run(site: Path, program: str) -> str:
    """Run a program in the folder above, which is no checkout; return what it printed."""
    (site.parent / "program.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    command = [sys.executable, "program.py"]
    ran = subprocess.run(command, cwd=site.parent, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_import_caffe_gives_scaffe_pycaffe_also_in_processes_that_are_spawned(site: Path) -> None:
    assert run(site, PROGRAM).split() == ["['scaffe.pycaffe']"]


def test_python_layers_keep_needing_consent(site: Path) -> None:
    consents = "from scaffe.defaults import get_defaults; print(get_defaults().compute.allow_python_layers)"
    assert run(site, f"import caffe; {consents}") == "False\n"
    assert run(site, f"import caffe; caffe.install(allow_python_layers=True); {consents}") == "True\n"
