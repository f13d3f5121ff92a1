from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import lockstep
import patience
import pytest

SPECIMENS = Path(__file__).parents[1] / "support/specimens.py"
PYTEST = [sys.executable, "-m", "mpi4py", "-m", "pytest", "-p", "no:cacheprovider"]
Finished = subprocess.CompletedProcess[str]
Run = Callable[..., Finished]

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own


@pytest.fixture(scope="module")
def specimens(mpirun: Run) -> Run:
    """Run the named specimens on two ranks."""

    def run(*names: str, **options: object) -> Finished:
        tests = [f"{SPECIMENS}::test_{name}" for name in names]
        return mpirun(2, *PYTEST, "--with-mpi", *tests, **options)

    return run


@pytest.fixture(scope="module")
def mixed(specimens: Run) -> Finished:
    """A run whose tests differ between the ranks; the last one meets only if the others left the ranks in step."""
    return specimens(
        "that_fails_on_rank_1", "whose_fixture_fails_on_rank_1", "that_rank_1_skips", "that_all_skip", "that_passes"
    )


def test_ranks_that_pass_speak_with_one_voice(specimens: Run) -> None:
    run = specimens("that_passes")
    assert run.returncode == 0
    assert run.stdout.count("1 passed in") == 1
    assert "rank 0 of 2" in run.stdout
    assert "rank 1 of 2" not in run.stdout


def test_a_test_after_one_that_differed_still_meets(mixed: Finished) -> None:
    assert mixed.returncode == 1
    assert "2 failed, 1 passed, 1 skipped, 1 error in" in mixed.stdout


def test_a_failure_on_one_rank_fails_everywhere_with_its_traceback(mixed: Finished) -> None:
    assert "call: rank 0 passed, rank 1 failed" in mixed.stdout
    assert "rank 1: " in mixed.stderr and "rank 1 alone is wrong" in mixed.stderr


def test_a_fixture_that_fails_on_one_rank_keeps_the_others_from_the_test(mixed: Finished) -> None:
    assert "setup: rank 0 passed, rank 1 failed" in mixed.stdout
    assert "no fixture on rank 1" in mixed.stderr


def test_a_skip_on_one_rank_alone_is_a_failure(mixed: Finished) -> None:
    assert "call: rank 0 passed, rank 1 skipped" in mixed.stdout


def test_ranks_that_cannot_import_the_same_tests_end_at_once(specimens: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIMEN_IMPORT_FAILS", "1")
    run = specimens("that_passes")
    assert run.returncode == 3
    assert "ranks [1] collected other tests than rank 0" in run.stdout
    assert "this rank has no such module" in run.stderr


def test_a_rank_that_waits_for_the_others_sleeps(monkeypatch) -> None:
    """Beside a rank that spins in MPI, threads of a lower priority would get a tenth of the core that they share."""
    slept, looks = [], iter([False] * 12 + [True])
    monkeypatch.setattr(lockstep.time, "sleep", slept.append)
    comm = SimpleNamespace(Ibarrier=lambda: SimpleNamespace(Test=lambda: next(looks)))
    lockstep.Lockstep(comm, "", 2).wait()
    assert len(slept) == 12 and slept == sorted(slept)
    assert slept[0] == lockstep.SHORTEST_SLEEP and slept[-1] == lockstep.LONGEST_SLEEP


def test_a_hang_is_ended_with_the_stacks_and_the_failure_that_led_to_it(specimens: Run) -> None:
    run = specimens("that_hangs_after_a_failure_on_rank_1", timeout=30)
    assert run.returncode == 3
    before, after = run.stderr.split("took more than 2 s", 1)
    assert "rank 1 left the others waiting" in before
    assert "lockstep.py" in after or "specimens.py" in after  # the stack of one that waits


def test_a_hang_outside_mpirun_is_ended_too() -> None:
    # --only-mpi alone runs the test in this one process, without the agreement of ranks.
    command = [sys.executable, "-m", "pytest", "--only-mpi", f"{SPECIMENS}::test_that_hangs_without_mpi"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 3
    assert "test_that_hangs_without_mpi took more than 2 s" in run.stderr
    assert "specimens.py" in run.stderr


def test_a_call_that_keeps_the_gil_is_ended_too() -> None:
    command = [sys.executable, "-m", "pytest", "--only-mpi", f"{SPECIMENS}::test_that_keeps_the_gil"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 1
    assert "Timeout (0:00:02)!" in run.stderr and "specimens.py" in run.stderr


@pytest.mark.parametrize(("share", "still", "looks"), [(1.0, 0, 8), (0.25, 0, 32), (1.0, 999, 8)])
def test_a_second_counts_for_the_share_of_a_core_that_a_test_gets(monkeypatch, share, still, looks) -> None:
    now, looked = [0.0], []

    def wait(seconds: float) -> bool:
        now[0] += seconds + still  # as long as the machine stood still
        looked.append(seconds)
        return False

    monkeypatch.setattr(patience.time, "monotonic", lambda: now[0])
    assert not patience.patient(wait, 4.0, lambda: share)
    assert len(looked) == looks
    assert patience.patient(lambda seconds: True, 4.0)


def test_a_hang_in_one_of_several_processes_ends_the_run_once() -> None:
    """Of a file whose process has ended, xdist ran the same test again, sixteen times, or waited for ever."""
    tests = [f"{SPECIMENS}::test_that_{name}" for name in ("passes", "hangs_without_mpi", "all_skip")]
    command = [*PYTEST, "-n", "2", "--dist", "loadfile", "--only-mpi", *tests]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 1
    assert (run.stdout + run.stderr).count("test_that_hangs_without_mpi took more than 2 s") == 1
    assert "1 failed, 1 passed" in run.stdout


def test_what_a_test_that_hangs_has_started_is_ended_with_it() -> None:
    """Ranks that are left would compute beside the tests of the other processes."""
    read, write = os.pipe()
    test, env = f"{SPECIMENS}::test_that_hangs_beside_a_process", {**os.environ, "SPECIMEN_PIPE": str(write)}
    run = subprocess.run([*PYTEST, "--only-mpi", test], capture_output=True, timeout=900, env=env, pass_fds=[write])
    os.close(write)
    with open(read, "rb") as pipe:
        assert pipe.read() == b"" and run.returncode == 3  # read: until no process holds the other end
