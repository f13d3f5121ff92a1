"""Policy: what follows from what the probes of a watch find: a line, the end of the job, or that of a process."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from collectives import abort
from scaffe.files.lock_owner import Owner
from scaffe.monitor.log import log, one_line
from scaffe.monitor.watching import ABORT, SAY
from scaffe.parallel.world import World

EXIT_CODE = 1


class Policy:
    """What follows in a job, by `how`, one of STALL.

    | found | say | abort | shrink |
    |---|---|---|---|
    | a rank waits for long | a line | the job ends | a line |
    | a process is stopped | a line | the job ends, or a spare | it is killed |
    | a rank hangs in a layer | | | it ends itself |
    | a process has ended, which MPI does not report | the job ends | the job ends | the job ends |
    """

    def __init__(self, world: World, how: str):
        self.world, self.how = world, how

    def waits(self, lines: Sequence[str]) -> None:
        """Act on the report of a rank that waits for long."""
        if self.how == ABORT:
            end_job(self.world, lines)
        for line in lines:
            log.warning("Stall: %s", line)

    def has_ended(self, line: str) -> None:
        """Act on a process for which the others would wait for ever."""
        end_job(self.world, [line])

    def is_stopped(self, number: int, process: Owner, seconds: float) -> None:
        """Act on the process that was started as rank `number`, which has been stopped for so long."""
        who = f"{self.world.name_of(number)} on {process.host}"
        if self.how == SAY:
            text = "Stall: %s is stopped: its process %d has not run for %.0f s; continue it (kill -CONT), or kill it"
            log.warning(text, who, process.pid, seconds)
        elif self.how == ABORT and not self.world.has_spare(number):
            end_job(self.world, [f"{who} is stopped: its process {process.pid} has not run for {seconds:.0f} s"])
        else:
            kill(process, f"{who} is given up: its process has not run for {seconds:.0f} s")


def end_job(world: World, lines: Sequence[str]) -> None:
    """End the job from the watch's thread, with these lines: the main thread may never return from MPI."""
    from mpi4py import MPI

    abort.write("".join(f"scaffe: {one_line(line)}\n" for line in lines))
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        world.abort(EXIT_CODE)
    os._exit(EXIT_CODE)  # the launcher ends the others


def kill(process: Owner, what: str) -> None:
    """Kill a process of this machine that has not ended; `what` is logged."""
    try:
        if process.kill():
            log.warning("Stall: %s; process %d is killed", what, process.pid)
    except OSError as error:
        log.error("Stall: %s, but process %d can't be killed: %s", what, process.pid, error.strerror)


def end_itself(who: str) -> None:
    """End this process at once, with a line: its main thread may never return, and must do nothing more."""
    abort.write(f"scaffe: {who}\n")
    os.kill(os.getpid(), signal.SIGKILL)
