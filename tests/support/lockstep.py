"""Keep the ranks of a test run in step: one outcome for all of them, no hang without an end, one voice.

A failure on one rank alone would let its next test meet the others' old one in a collective. So all ranks agree on
the outcome of each test's set-up, call and teardown, and a test that hangs is ended with every thread's stack.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from patience import LOOK, least_share, patient

STATUS = 3  # the exit status of a run that a watchdog ended
SECONDS = 120.0  # as patience counts them
SHORTEST_SLEEP, LONGEST_SLEEP = 20e-6, 2e-3  # seconds between two looks whether all ranks have ended a test
STILL = 900.0  # without the GIL, after which the run is ended; many, since a machine may stand still for minutes


class Running(NamedTuple):
    """A test that runs, and how long it may take."""

    nodeid: str
    seconds: float


class Watchdog:
    """End the run, on all ranks, when a test exceeds its seconds (marker `watchdog`), as patience counts them.

    One thread looks at all tests: to start one for each takes longer than most of them. It also keeps putting off a
    second guard, which is C alone, and so ends a call that never gives the GIL back.
    """

    def __init__(self, stderr: int, end: Callable[[int], object]):
        self.stderr, self.end = stderr, end
        self.test: Running | None = None
        self.over = threading.Event()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        threading.Thread(target=self.watch, name="watchdog", daemon=True).start()
        try:
            return (yield)
        finally:
            self.over.set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        marker = item.get_closest_marker("watchdog")
        self.test = Running(item.nodeid, float(marker.args[0]) if marker else SECONDS)
        try:
            return (yield)
        finally:
            self.test = None

    def watch(self) -> None:
        while not self.over.wait(LOOK):
            self.put_off()
            if (test := self.test) and not patient(partial(self.has_ended, test), test.seconds, least_share):
                self.bark(*test)
        faulthandler.cancel_dump_traceback_later()

    def has_ended(self, test: Running, seconds: float) -> bool:
        self.put_off()
        return self.over.wait(seconds) or self.test is not test

    def put_off(self) -> None:
        faulthandler.dump_traceback_later(STILL, exit=True, file=self.stderr)

    def bark(self, nodeid: str, seconds: float) -> None:
        os.write(self.stderr, f"\nwatchdog: {nodeid} took more than {seconds:g} s\n".encode())
        faulthandler.dump_traceback(file=self.stderr, all_threads=True)
        self.end(STATUS)


def end_process(status: int) -> None:
    """End this process, and what it has started: mpirun ends its ranks when it is asked to."""
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # they may have ended
            for child in children.read_text().split():
                os.kill(int(child), signal.SIGTERM)
    os._exit(status)


class Lockstep:
    """Agree on the tests to run and on each one's outcome over the ranks of `comm`, a communicator of its own."""

    def __init__(self, comm: Any, vendor: str, stderr: int):
        self.comm, self.vendor, self.stderr = comm, vendor, stderr

    def pytest_report_header(self) -> str:
        return f"mpi: {self.vendor}, rank {self.comm.rank} of {self.comm.size}"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.tell(f"cannot collect {report.nodeid}\n{report.longreprtext}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        collected = self.comm.allgather((session.testsfailed, [item.nodeid for item in session.items]))
        others = [rank for rank, tests in enumerate(collected) if tests != collected[0]]
        if others:
            pytest.exit(f"ranks {others} collected other tests than rank 0, or could not import some", STATUS)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, None]:
        yield from self.agree(item, "setup")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, None]:
        yield from self.agree(item, "call")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, None]:
        yield from self.agree(item, "teardown")

    def agree(self, item: pytest.Item, phase: str) -> Generator[None, object, None]:
        """Run one phase of a test; fail it here when it had another outcome on another rank."""
        error: BaseException | None = None
        try:
            yield
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise
        except BaseException as caught:  # pytest's own skip and fail are no Exceptions
            error = caught
            if not isinstance(caught, pytest.skip.Exception):
                self.tell(f"{item.nodeid} failed in its {phase}\n{trace(caught)}")  # now: the other ranks may hang
        self.wait()
        outcomes = self.comm.allgather(outcome(error))
        if len(set(outcomes)) > 1 and outcome(error) != "failed":
            pytest.fail(f"{phase}: " + ", ".join(f"rank {r} {o}" for r, o in enumerate(outcomes)), pytrace=False)
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait until all ranks have come here, and leave the cores to those that compute: MPI's own waits spin.

        An instance's thread has a lower priority than a rank that spins beside it.
        """
        seconds, request = SHORTEST_SLEEP, self.comm.Ibarrier()
        while not request.Test():
            time.sleep(seconds)
            seconds = min(2 * seconds, LONGEST_SLEEP)

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.tell(f"pytest itself failed\n{trace(excinfo.value)}")
        self.comm.Abort(STATUS)

    def tell(self, what: str) -> None:
        os.write(self.stderr, f"\nrank {self.comm.rank}: {what}\n".encode())

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        # A failed rank's exit aborts the job: not before rank 0 has said what happened.
        sys.stdout.flush()
        self.comm.Barrier()
        self.comm.Free()


def outcome(error: BaseException | None) -> str:
    """Name what a test phase that raised `error` came to."""
    return "passed" if error is None else "skipped" if isinstance(error, pytest.skip.Exception) else "failed"


def trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def configure(config: pytest.Config) -> None:
    """Set up the watchdog, and under --with-mpi the agreement of the ranks and the silence of those above 0."""
    stderr = os.dup(2)  # tests run with descriptor 2 captured
    config.add_cleanup(lambda: os.close(stderr))
    if not config.getoption("--with-mpi", default=False):
        config.pluginmanager.register(Watchdog(stderr, end_process))
        return
    from mpi4py import MPI

    config.pluginmanager.register(Watchdog(stderr, MPI.COMM_WORLD.Abort))
    # Ranks that share pytest's folder for temporary files would clear it away under each other's hands.
    folder = tempfile.mkdtemp(prefix=f"pytest-rank{MPI.COMM_WORLD.rank}-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
    name, version = MPI.get_vendor()
    vendor = f"{name} {'.'.join(map(str, version))}"
    config.pluginmanager.register(Lockstep(MPI.COMM_WORLD.Dup(), vendor, stderr))
    if MPI.COMM_WORLD.rank > 0:
        silence(config)


def silence(config: pytest.Config) -> None:
    """Send this rank's test report to nowhere."""
    nowhere = open(os.devnull, "w")  # noqa: SIM115 - closed with the run
    config.add_cleanup(nowhere.close)
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(pytest.TerminalReporter(config, nowhere), "terminalreporter")
