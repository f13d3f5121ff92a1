"""Retries: start a training again that a lost process has ended, at its newest snapshot.

A job also ends by its user's will, or by an error that would come again; then it isn't started again. The exit status
does not tell them apart: a process that exits with 1 may have been lost or have raised an exception. So what the job
writes to stderr counts too.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from scaffe.errors import RanksLostError
from scaffe.parallel.watch.start import WITH_FT, watched
from scaffe.training.hosts import Hosts, named
from scaffe.training.signals import REQUEUE_EXIT_CODE, SIGNALS, take_held

SIGNALLED = 128  # Open MPI's exit status for a process that was killed by signal N is this and N
NOT_STARTED = 66, 183, 126, 127  # of a program that is not there or can't be started: Open MPI's, and a shell's
FINAL = 0, 2, *NOT_STARTED, REQUEUE_EXIT_CODE, signal.SIGTERM, SIGNALLED + signal.SIGINT, SIGNALLED + signal.SIGTERM
# The first line that a failing rank writes. A rank that lost another one may see an error of MPI first.
ERROR = re.compile(rb"(scaffe: |Traceback \(most recent call last\))")
STALL = re.compile(
    rb"scaffe: (a rank|(rank|spare) \d+)( \(process \d+\))?( on \S+)? "
    rb"(has not moved for |is stopped: |has ended(,| before) )"
)
LOGS, ENDS = re.compile(rb"I\d{4} \d\d:.*\] "), re.compile(rb"I\d{4} \d\d:.*\] Optimization (Done|stopped early)\.")
LOST_PEER = re.compile(rb"MPI_ERR_(PROC_|REVOKED)")
AGAIN = 5.0  # seconds until USR1 is sent again: a launcher that has not started the ranks passes it on to none
PATIENCE = 2  # seconds for the rest of stderr once the launcher has ended
# Open MPI's mpirun notices by TCP alone that it has lost a host; by default after eight minutes.
KEEPALIVE = {"time": "2", "intvl": "1", "probes": "2"}  # seconds, seconds, and how many


def was_lost(code: int, errors: Sequence[bytes]) -> bool:
    """Return whether a job has ended because a process was lost, or hung, by its exit status and lines of ERROR.

    Open MPI's status gives the signal that killed a process. MPICH's may be that of processes that mpirun killed after
    an error, so there an error that scaffe has reported counts.
    """
    if code in FINAL:
        return False
    if code > SIGNALLED or code == RanksLostError.exit_code or not errors or STALL.match(errors[0]):
        return True
    return any(LOST_PEER.search(line) for line in errors)


class Try:
    """One start of a job: its process in a session of its own, whose stderr is passed on and searched for errors.

    `lost_hosts` are those that the launcher says it has lost.
    """

    def __init__(self, command: Sequence[str]):
        self.errors: list[bytes] = []
        self.lost_hosts: set[str] = set()
        self._has_begun = self._has_ended = False
        self._says_nothing = WITH_FT in command
        keepalive = {f"PRTE_MCA_oob_tcp_keepalive_{name}": value for name, value in KEEPALIVE.items()}
        self.process = subprocess.Popen(
            watched(command), stderr=subprocess.PIPE, start_new_session=True, env={**keepalive, **os.environ}
        )
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def end(self) -> int:
        """Wait for the end of the job; return its exit status as a shell gives it."""
        code = self.process.wait()
        self._reader.join(PATIENCE)  # a process that was left behind may keep the pipe open
        return SIGNALLED - code if code < 0 else code

    @property
    def is_broken_off(self) -> bool:
        """Whether a training has written lines of its log, but not that of its end."""
        return self._has_begun and not self._has_ended

    @property
    def has_said_nothing(self) -> bool:
        """Whether ranks that tolerate faults have written nothing at all, as if killed while they start."""
        return self._says_nothing

    def _pass_on(self) -> None:
        assert self.process.stderr is not None
        line = b""
        with self.process.stderr as stderr:
            while chunk := os.read(stderr.fileno(), 1 << 16):
                self._says_nothing = False
                sys.stderr.buffer.write(chunk)
                sys.stderr.flush()
                *lines, line = (line + chunk).replace(b"\r", b"\n").replace(b"\0", b"\n").split(b"\n")
                self.lost_hosts |= {*map(named, lines)} - {""}
                for one in lines:
                    self._has_begun |= bool(LOGS.search(one))
                    self._has_ended |= bool(ENDS.search(one))
                    if ERROR.match(one) or (self.errors and LOST_PEER.search(one)):
                        self.errors.append(one)


class Retries:
    """Starts `command` again, at most `most` times, while lost processes end it.

    `newest()` returns the newest snapshot, None without one. Two tries in a row that take no further snapshot are the
    last. `start(command)` returns a Try. The signals of SIGNALS are passed on to the job; after one of them it is not
    started again, nor at all if it was not yet. USR1, with which a batch system announces the end of its time, asks to
    be requeued: a process that is lost then, as by USR1 while it starts, has the same exit status, REQUEUE_EXIT_CODE.
    Where one of the `hosts` is lost, the next try starts the ranks of those that are left.

    Open MPI's mpirun returns 0 where all processes were killed. So a job of this exit status has been lost, too, if its
    log has no end, if it has written no word and no snapshot, or if `is_broken_off()`, which returns whether a job has
    ended without having released what it held.
    """

    def __init__(
        self,
        command: Sequence[str],
        most: int,
        newest: Callable[[], str | None],
        start: Callable[[Sequence[str]], Any] = Try,
        hosts: Hosts | None = None,
        is_broken_off: Callable[[], bool] = lambda: False,
    ):
        self.hosts, self.most, self.newest, self.start = hosts or Hosts(command), most, newest, start
        self.is_broken_off = is_broken_off
        self._asked: int = 0  # the last signal
        self._job: Any = None

    def run(self) -> int:
        """Run the job to its end; return the exit status of the last try. Only in a process's main thread."""
        before = {number: signal.signal(number, self._pass_on) for number in SIGNALS}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: self._send())
        take_held()
        try:
            return self._run()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self) -> int:
        idle, snapshot = 0, self.newest()
        for number in range(self.most + 1):
            if self._asked:
                return self._as_asked()
            self._job = self.start(self.hosts.command)
            if self._asked:  # meanwhile
                self._send()
            code: int = self._job.end()
            lost_hosts = self._job.lost_hosts
            has_lost = lost_hosts or was_lost(code, self._job.errors) or (code == 0 and self._is_lost(snapshot))
            if has_lost and self._is_to_requeue:
                return self._as_asked()
            if self._asked or not has_lost:
                if code in NOT_STARTED and not self._asked:
                    _say(f"the program can't be started (exit status {code}): not started again")
                return code
            before, snapshot = snapshot, self.newest()
            idle = idle + 1 if snapshot == before else 0
            why = f"a {'host' if lost_hosts else 'process'} was lost (exit status {code})"
            is_untold = code == 0  # by Open MPI's mpirun where a host, or all, are lost
            code = code or RanksLostError.exit_code
            if idle == 2:
                _say(f"{why} in two tries without a new snapshot: not started again")
                return code
            if number < self.most:
                try:
                    left = self.hosts.drop(lost_hosts)
                except RanksLostError as error:
                    _say(f"{why}: {error}: not started again")
                    return RanksLostError.exit_code
                _say(f"{why}: retry {number + 1} of {self.most}, from {snapshot or 'the start'}{left and '; ' + left}")
        if self.most:
            _say(f"{why} in the last of {self.most} retries: not started again")
        elif is_untold:
            _say(why)
        return code

    def _is_lost(self, snapshot: str | None) -> bool:
        """Return whether a job of exit status 0 was lost. One that wrote no log, but a further snapshot, was not."""
        was_silent = self._job.has_said_nothing and self.newest() == snapshot
        return was_silent or self._job.is_broken_off or self.is_broken_off()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._asked = number
        again = AGAIN if number == signal.SIGUSR1 else 0
        signal.setitimer(signal.ITIMER_REAL, again, again)
        self._send()

    def _send(self) -> None:
        """Send the signal that has come to the job, if it runs."""
        if self._job is not None and self._job.process.poll() is None:
            self._job.process.send_signal(self._asked)

    @property
    def _is_to_requeue(self) -> bool:
        return self._asked == signal.SIGUSR1

    def _as_asked(self) -> int:
        """Return the exit status of a job that has ended, or was not started, since a signal came."""
        return REQUEUE_EXIT_CODE if self._is_to_requeue else SIGNALLED + self._asked


def _say(text: str) -> None:
    print(f"scaffe retry: {text}", file=sys.stderr, flush=True)
