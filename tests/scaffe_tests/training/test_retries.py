"""Retries: after which ends a job is started again, and when that ends."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence

import pytest

from scaffe.training import retries
from scaffe.training.retries import Retries, Try, was_lost
from scaffe.training.signals import hold

TRACEBACK = b"scaffe: rank 0: Traceback (most recent call last):"


@pytest.fixture(autouse=True)
def patient(monkeypatch) -> None:
    """Wait for the rest of stderr for as long as a busy machine takes: no test leaves a process that holds it."""
    monkeypatch.setattr(retries, "PATIENCE", 900)


@pytest.mark.parametrize(
    ("code", "errors", "lost"),
    [
        (0, [], False),
        (137, [], True),  # SIGKILL, as Open MPI gives it
        (139, [], True),
        (9, [], True),  # SIGKILL, as MPICH gives it
        (1, [], True),  # a process that exited without a word
        (1, [TRACEBACK], False),
        (9, [TRACEBACK], False),  # MPICH's mpirun killed the others
        (137, [TRACEBACK], True),
        (1, [b"scaffe: rank 1: Traceback", b"mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED: Process Failure"], True),
        (1, [b"Traceback (most recent call last):"], False),  # before MPI has started
        (1, [b"scaffe: rank 0 has not moved for 3 s: backward pass; missing:", b"scaffe: rank 1 on a: last"], True),
        (76, [b"scaffe: ranks left: 1, fewer than --min-ranks 2"], True),
        (1, [b"scaffe: rank 1 on vm is stopped: its process 7 has not run for 60 s"], True),
        (1, [b"scaffe: rank 1 (process 7) on vm has ended before all ranks had started"], True),
        (1, [b"scaffe: a rank on vm has ended before all ranks had started"], True),
        (1, [b"scaffe: rank 1 (process 7) on vm has ended, which MPI does not report"], True),
        (1, [b"scaffe: spare 3 (process 7) on vm has ended, which MPI does not report"], True),
        (1, [b"scaffe: rank 1 on vm has ended while rank 0 waits for it: update"], False),  # it would again
        (1, [b"scaffe: rank 1: a user's text on what is stopped: 7"], False),
        (2, [], False),
        (66, [], False),  # Open MPI's mpirun finds no such program
        (183, [], False),  # nor one that it may start
        (127, [], False),  # a shell
        (75, [], False),
        (130, [], False),
        (143, [], False),
        (15, [], False),  # SIGTERM, as MPICH gives it
    ],
)
def test_a_lost_process_is_distinguished_from_an_error(code: int, errors: Sequence[bytes], lost: bool) -> None:
    assert was_lost(code, errors) is lost


class Ended:
    """A try that ends at once."""

    is_broken_off = has_said_nothing = False

    def __init__(self, code: int, *lost_hosts: str):
        self.code, self.errors, self.lost_hosts = code, list[bytes](), {*lost_hosts}

    def end(self) -> int:
        return self.code


def run(codes: Sequence[int], snapshots: Sequence[str | None], most: int) -> tuple[int, int]:
    """Run tries that end with these codes; return the exit status and how many there were."""
    left: Iterator[int] = iter(codes)
    status = Retries(["job"], most, iter(snapshots).__next__, lambda command: Ended(next(left))).run()
    return status, len(codes) - len(list(left))


@pytest.mark.parametrize(
    ("codes", "snapshots", "most", "expected"),
    [
        ([137, 137, 0], [None, "a", "b"], 3, (0, 3)),
        ([137, 2, 0], [None, "a"], 3, (2, 2)),
        ([137] * 9, [None, "a", "b", "c", "d"], 3, (137, 4)),  # after the last retry
        ([137] * 9, [None, "a", "a", "a"], 9, (137, 3)),  # two tries without a new snapshot
        ([137] * 9, [None, "a", "a", "b", "b", "b"], 9, (137, 5)),
        ([137], [None, None], 0, (137, 1)),
    ],
)
def test_a_job_is_started_again_while_it_comes_on(codes, snapshots, most, expected) -> None:
    assert run(codes, snapshots, most) == expected


def test_each_retry_is_one_line(capfd) -> None:
    run([137, 1, 0], [None, "snap_iter_2.solverstate", "snap_iter_4.solverstate"], 2)
    assert capfd.readouterr().err.splitlines() == [
        "scaffe retry: a process was lost (exit status 137): retry 1 of 2, from snap_iter_2.solverstate",
        "scaffe retry: a process was lost (exit status 1): retry 2 of 2, from snap_iter_4.solverstate",
    ]


def test_a_program_that_is_not_there_is_named_as_such_and_not_started_again(capfd) -> None:
    assert run([127, 0], [None, "a"], 3) == (127, 1)
    [line] = capfd.readouterr().err.splitlines()
    assert line == "scaffe retry: the program can't be started (exit status 127): not started again"


def test_a_host_that_is_lost_is_not_used_again(capfd) -> None:
    started: list[list[str]] = []
    tries = iter([Ended(0, "b"), Ended(0)])  # Open MPI's exit status

    def start(command: Sequence[str]) -> Ended:
        started.append([*command])
        return next(tries)

    assert Retries(["mpirun", "-H", "a:2,b:2"], 3, iter([None, "snap"]).__next__, start).run() == 0
    assert started == [["mpirun", "-H", "a:2,b:2"], ["mpirun", "-H", "a:2"]]
    [line] = capfd.readouterr().err.splitlines()
    assert line.endswith("a host was lost (exit status 0): retry 1 of 3, from snap; without b 2 of 4 rank(s) are left")


def test_a_job_that_kept_its_lock_is_started_again_whatever_its_exit_status(capfd) -> None:
    locked = iter([True, False])
    tries = iter([Ended(0), Ended(0)])
    given = ["mpirun"], 3, iter([None, "snap"]).__next__, lambda command: next(tries)
    assert Retries(*given, is_broken_off=locked.__next__).run() == 0
    [line] = capfd.readouterr().err.splitlines()
    assert line.endswith("a process was lost (exit status 0): retry 1 of 3, from snap")


STARTS = "I1127 17:19:26.318649 30574 solver.py:325] Training to iteration 6"


@pytest.mark.parametrize(
    ("lines", "tries"),
    [
        ([STARTS], 3),
        ([f"\0{STARTS}", STARTS.replace("Training to iteration 6", "Optimization Done.")], 1),
        ([STARTS, STARTS.replace("Training to iteration 6", "Optimization stopped early.")], 1),
        (["a program without a log", STARTS.replace("I1", "W1")], 1),  # the line of its end isn't logged either
        ([STARTS, "Optimization Done."], 3),  # no line of the log
    ],
)
def test_a_job_whose_log_has_no_end_is_started_again_whatever_its_exit_status(lines, tries, capfd) -> None:
    started, command = [], [sys.executable, "-c", f"import sys; sys.stderr.write({chr(10).join(lines) + chr(10)!r})"]

    def start(command: Sequence[str]) -> Try:
        started.append(Try(command))
        return started[-1]

    assert Retries(command, 2, iter("abcd").__next__, start).run() == (0 if tries == 1 else 76)
    assert len(started) == tries
    assert capfd.readouterr().err.count("a process was lost (exit status 0)") == (0 if tries == 1 else 3)


@pytest.mark.parametrize(("text", "snapshots", "tries"), [("", "aaaaa", 2), ("", "ab", 1), ("a line", "aa", 1)])
def test_ranks_that_were_killed_while_they_started_are_started_again(text, snapshots, tries, capfd) -> None:
    """Open MPI's mpirun that tolerates faults exits with 0, and nothing is written."""
    started, command = [], ["sh", "-c", f"printf '{text}' >&2", "--with-ft", "ulfm"]

    def start(command: Sequence[str]) -> Try:
        started.append(Try(command))
        return started[-1]

    assert Retries(command, 9, iter(snapshots).__next__, start).run() == (76 if tries == 2 else 0)
    assert len(started) == tries


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 9), (signal.SIGTERM, 9), (signal.SIGUSR1, 75)])
def test_a_signal_is_passed_on_and_the_job_not_started_again(number: signal.Signals, code: int) -> None:
    program = f"""
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])
os.kill(os.getppid(), {int(number)})
signal.sigwait([{int(number)}])
os._exit(9)
"""
    tries = []

    def start(command: Sequence[str]) -> Try:
        tries.append(Try(command))
        return tries[-1]

    assert Retries([sys.executable, "-c", program], 3, lambda: None, start).run() == code
    assert len(tries) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 75)])
def test_a_signal_before_the_job_is_started_is_remembered_and_none_is(number: signal.Signals, code: int) -> None:
    hold()
    signal.raise_signal(number)
    assert Retries(["job"], 3, lambda: None, lambda command: pytest.fail("the job is started")).run() == code


@pytest.mark.parametrize(("codes", "code"), [([138], 75), ([10], 75), ([0], 0), ([2], 2)])
def test_a_job_that_usr1_ends_while_it_starts_asks_to_be_requeued(codes: Sequence[int], code: int) -> None:
    class Asked(Ended):
        def end(self) -> int:
            signal.raise_signal(signal.SIGUSR1)
            return super().end()

        class process:
            poll = send_signal = staticmethod(lambda *given: None)

    assert Retries(["job"], 3, lambda: None, lambda command: Asked(*codes)).run() == code


def test_usr1_is_sent_again_to_a_launcher_that_has_not_passed_it_on(monkeypatch) -> None:
    monkeypatch.setattr(retries, "AGAIN", 0.01)
    program = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getppid(), signal.SIGUSR1)
for _ in range(3):
    signal.sigwait([signal.SIGUSR1])
os._exit(75)
"""
    assert Retries([sys.executable, "-c", program], 0, lambda: None).run() == 75


def test_stderr_is_passed_on_and_its_errors_are_noted(capfd) -> None:
    text = "a line\\nscaffe: rank 1: Traceback (most recent call last):\\n  File\\n\\0---\\n"
    one = Try([sys.executable, "-c", f"import sys; sys.stderr.write('{text}'); sys.exit(1)"])
    assert one.end() == 1
    assert capfd.readouterr().err == text.encode().decode("unicode_escape")
    assert one.errors == [TRACEBACK.replace(b"0", b"1")]


def test_each_try_of_ranks_that_may_be_lost_has_a_watch_over_their_start() -> None:
    look = ["sh", "-c", 'grep -q "@scaffe start watch .* $$ " /proc/net/unix']
    assert [Try([*look, "--with-ft", "ulfm"]).end(), Try(look).end()] == [0, 1]


def test_a_process_that_a_signal_killed_has_the_exit_status_of_a_shell() -> None:
    assert Try([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]).end() == 137


def test_hosts_and_peers_that_are_lost_are_noted(capfd) -> None:
    text = "scaffe: rank 1: Traceback\\n  mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED\\n  Remote host:   nl1\\n"
    one = Try([sys.executable, "-c", f"import sys; sys.stderr.write('{text}')"])
    one.end()
    assert one.lost_hosts == {"nl1"} and len(one.errors) == 2
    assert was_lost(1, one.errors)


def test_the_exit_status_of_a_job_whose_hosts_are_all_lost_is_not_0(capfd) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert Retries(["mpirun", "-H", "a,b"], 0, lambda: None, lambda command: Ended(0, "b")).run() == 76
    assert signal.getsignal(signal.SIGINT) is before
