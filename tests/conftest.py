"""Fixtures that all tests share. What keeps ranks in step is in lockstep.py."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import hypothesis
import lockstep
import nets
import pytest
from lost_runs import Runs, Undisturbed
from paper_figures import FOLDERS
from patience import communicate

from collectives import Communicator
from scaffe.monitor import log
from scaffe.parallel.world import launcher_rank

ROOT = Path(__file__).resolve().parents[1]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let xdist replace no process that a watchdog has ended: the next would run the same test, or wait for ever."""
    if getattr(config.option, "maxworkerrestart", None) is None:
        config.option.maxworkerrestart = "0"


@pytest.hookimpl(trylast=True)  # after the terminal reporter is there
def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all tests are collected: a fifth of that time
    lockstep.configure(config)
    # Ranks must draw the same examples; how long one takes says nothing on a shared machine.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("scaffe", deadline=None, derandomize=True, suppress_health_check=slow)
    hypothesis.settings.load_profile("scaffe")


def pytest_collection_finish() -> None:
    """Leave what is there now, thousands of tests, out of each search for garbage."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of files and numbers that Caffe itself wrote; without it the test is skipped."""
    folder = Path(os.environ.get("SCAFFE_CASES", ROOT.parent / "shared"))
    if not (folder / "caffe").is_dir():
        pytest.skip(f"no Caffe reference files in {folder}; SCAFFE_CASES names their folder")
    return folder.resolve()


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An LMDB of learnable images, to be read alone."""
    return nets.write_images(tmp_path_factory.mktemp("images") / "db")


@pytest.fixture(scope="module")
def comm() -> Iterator[Communicator]:
    """A communicator of all ranks. Collective."""
    from mpi4py import MPI

    made = Communicator(MPI.COMM_WORLD)
    yield made
    made.free()


@pytest.fixture(scope="module")
def torch_group() -> Iterator[None]:
    """All ranks as torch.distributed's default group. Collective."""
    import torch_ranks

    with torch_ranks.process_group():
        yield


@pytest.fixture(scope="module")
def figures_path() -> Iterator[None]:
    """jobs/papers and jobs/bench on sys.path, and their modules gone afterwards: others have the same names."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*FOLDERS, *sys.path])
        yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(tuple(FOLDERS)):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def started_log() -> None:
    """Begin each test with the log as the first World starts it: its handler, level and filter are no other test's."""
    assert logging.root.manager.disable == logging.NOTSET, (
        "an earlier test has left lines of the log out for all others"
    )
    log.start(launcher_rank(), level=0)
    for logger in log.LOGGERS:
        logger.filters = [log.OfOneInstance()]


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """pytest's own, which sees scaffe's lines too, also where the first World of this process is opened meanwhile."""
    for logger in log.LOGGERS:
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(log, "start", lambda *given: None)
    return caplog


@pytest.fixture
def not_root():
    """Root may read and write everything, so a root that runs the test is somebody else for its time."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


class Launcher:
    """Start programs with jobs/mpirun.sh, in this interpreter's environment."""

    def start(self, n: int, *args: object, **popen: object) -> subprocess.Popen[str]:
        """Start `n` ranks and return the running mpirun, its output piped as text."""
        command = [str(ROOT / "jobs/mpirun.sh"), "-n", str(n), *map(str, args)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, **{"env": environment(), **pipes, **popen})  # type: ignore[call-overload]

    def __call__(self, n: int, *args: object, timeout: float = 60, **popen: object) -> subprocess.CompletedProcess[str]:
        """Run `n` ranks to their end; fail the test, with what they wrote, when that takes more than `timeout` s.

        Seconds are as patience counts them.
        """
        process = self.start(n, *args, **popen)
        written = communicate(process, timeout)
        if written is None:
            process.terminate()  # mpirun ends its ranks when asked; killed, it would leave them running
            stdout, stderr = process.communicate(timeout=10)
            pytest.fail(f"mpirun -n {n} {args} ran for more than {timeout:g} s\n{stdout}\n{stderr}", pytrace=False)
        return subprocess.CompletedProcess(process.args, process.returncode, *written)

    @cached_property
    def is_open_mpi(self) -> bool:
        """Whether mpirun is Open MPI's."""
        return "Open MPI" in self(1, "--version").stdout


def environment() -> dict[str, str]:
    """This process's environment, with the packages under test on the path and the interpreter's own mpirun first."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Open MPI gives ranks a terminal, so that they would write in colours.
    return {**os.environ, "PYTHONPATH": path, "SCAFFE_VENV": sys.prefix, "NO_COLOR": "1"}


@pytest.fixture(scope="session")
def mpirun() -> Launcher:
    """`mpirun(n, *command, timeout=60)` runs `n` ranks; `mpirun.start` returns the running process."""
    return Launcher()


@pytest.fixture(scope="session")
def tolerant_mpirun(mpirun: Launcher) -> Launcher:
    """`mpirun`, which can start ranks that go on when one is lost; without that the test is skipped."""
    if not mpirun.is_open_mpi:
        pytest.skip("only Open MPI goes on without a rank")
    return mpirun


@pytest.fixture(scope="module")
def undisturbed(mpirun: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    """Ranks for trainings none of whose ranks are lost."""
    made = Undisturbed(mpirun, tmp_path_factory.mktemp("undisturbed"))
    yield made
    made.close()


@pytest.fixture
def runs(tolerant_mpirun: Launcher, tmp_path: Path, images: Path, undisturbed: Undisturbed) -> Runs:
    """Trainings some of whose ranks are lost."""
    return Runs(tolerant_mpirun, tmp_path, images, undisturbed)
