"""What users install: the files of the two distributions, and the wheel at work, alone, outside the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("collectives/", "readers/", "scaffe/")
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(300)]


def tracked() -> list[str]:
    """Return the checkout's files: what git has, and what is new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git, or no checkout: what belongs to a distribution is not known")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def build(kind: str, source: Path, out: Path) -> Path:
    """Build a "sdist" or "wheel" as pip does, by the packages that are installed here; return its file."""
    out.mkdir()
    run = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", out], cwd=source, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    [file] = out.iterdir()
    return file


class Built:
    """The distributions: `sdist` of a copy of the checkout, unpacked in `unpacked`, and the `wheel` of that."""

    def __init__(self, folder: Path):
        self.files = tracked()
        copy = folder / "checkout"
        for name in self.files:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        self.sdist = build("sdist", copy, folder / "sdist")
        subprocess.run(["tar", "xzf", self.sdist], cwd=folder, check=True)
        [self.unpacked] = folder.glob("scaffe-*")
        self.wheel = build("wheel", self.unpacked, folder / "wheel")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("built"))


class Installed:
    """An environment that has the wheel, and beside it what the tests' environment has, but not its scaffe.

    That one is installed editable, by a .pth file, which counts in a site's folder alone and not on sys.path.
    """

    def __init__(self, wheel: Path, folder: Path, mpirun):
        self.folder, self._mpirun = folder, mpirun
        venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        self.python, self.scaffe = venv / "bin/python", venv / "bin/scaffe"
        [self.site] = venv.glob("lib/python*/site-packages")
        (self.site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.environment = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SCAFFE_VENV")
        }
        found = {"PATH": [f"{venv}/bin", f"{sys.prefix}/bin"], "LD_LIBRARY_PATH": [f"{sys.prefix}/lib"]}  # the MPI's
        for name, folders in found.items():
            self.environment[name] = os.pathsep.join(filter(None, [*folders, os.environ.get(name)]))
        self.environment |= {"NO_COLOR": "1", "VIRTUAL_ENV": str(venv)}
        self.alone(self.python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--ignore-installed", wheel)

    def alone(self, *command: object) -> str:
        """Run one process to its end; return what it wrote."""
        given = list(map(str, command))
        run = subprocess.run(given, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout + run.stderr

    def ranks(self, *command: object) -> str:
        """Run two ranks to their end; return what they wrote."""
        run = self._mpirun(2, *command, cwd=self.folder, env=self.environment, timeout=240)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout + run.stderr


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory, mpirun) -> Installed:
    found = Installed(built.wheel, tmp_path_factory.mktemp("elsewhere"), mpirun)
    (found.folder / "jobs").symlink_to(built.unpacked / "jobs")
    return found


def inside(names: Sequence[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(PACKAGES))


def test_a_wheel_has_every_file_of_the_packages_and_nothing_else(built: Built) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    assert inside(names) == inside(built.files)
    assert {name.split("/")[0] for name in names if not name.startswith(PACKAGES)} == {
        f"{built.unpacked.name}.dist-info"
    }


def test_a_source_distribution_is_the_checkout(built: Built) -> None:
    names = {str(path.relative_to(built.unpacked)) for path in built.unpacked.rglob("*") if path.is_file()}
    made = {name for name in names if name.startswith(("scaffe.egg-info/", "build/")) or name in ("PKG-INFO",)}
    assert sorted(names - made) == sorted(name for name in built.files if not name.startswith("."))
    assert os.access(built.unpacked / "jobs/mpirun.sh", os.X_OK)


def test_what_is_imported_is_the_wheel_s(installed: Installed) -> None:
    program = "import sys, collectives, readers, scaffe; print(*(sys.modules[name].__file__ for name in sys.argv[1:]))"
    names = [package.rstrip("/") for package in PACKAGES]
    files = installed.alone(installed.python, "-c", program, *names).split()
    assert files == [str(installed.site / name / "__init__.py") for name in names]


def test_the_quickstart_s_net_learns_the_digits_on_two_ranks(installed: Installed) -> None:
    data = installed.folder / "build/quickstart"
    data.mkdir(parents=True)
    installed.alone(installed.scaffe, "convert-digits", data)
    installed.ranks(installed.scaffe, "train", "--solver", "jobs/lenet/solver.prototxt")
    test = [installed.scaffe, "test", "--model", "jobs/lenet/train_test.prototxt", "--iterations", 6]
    log = installed.alone(*test, "--weights", data / "lenet_iter_400.caffemodel")
    assert float(re.findall(r"\] accuracy = (\S+)", log)[-1]) >= 0.975


def test_the_benchmark_the_model_and_the_tuning_run(installed: Installed) -> None:
    python = installed.python
    table = installed.ranks(
        python, "-m", "collectives.bench", "reduce", "-m", "1024:4096", "-i", 5, "--algorithm", "auto,mpi"
    )
    assert re.findall(r"^(1024|2048|4096) ", table, re.MULTILINE)
    assert "cb-8" in installed.alone(
        python, "-m", "collectives.model", "reduce", "--ranks", 16, "--bytes", "1M", "--cluster", "kesch"
    )
    tuned = installed.ranks(
        python, "-m", "collectives.tune", "--ops", "reduce", "-m", "64K:64K", "--seconds", 1, "--out", "t.json"
    )
    assert "t.json is written" in tuned and (installed.folder / "t.json").is_file()
