"""Mistakes: a rank errs in a call on which the others have agreed before.

They ask nobody, and may be inside MPI already, where no message of ours reaches them. Nothing may be sent in calls
without a mistake either. So the ranks of a node have a board in shared memory. It is all that a rank knows of others:

1. Who enters a call that is known writes its number and its plan to the board, then runs it, and then looks whether it
   was told of a mistake.
2. Who errs, or has a call that is new to it, writes that it asks, and waits until all ranks ask, or any runs. If all
   ask they agree as ever. If any runs, it tells all ranks, on the board, and takes part in what they run, with zeros,
   so that they get out; what they get is worthless, but they are told before.
3. Whoever has been told writes that it joins and runs nothing more of its own. Ranks that depend on nobody, such as a
   broadcast's root, may have begun further calls: all take part in these too, until all have joined.
4. Then the ranks agree: who erred raises what is wrong, and all others the same. What was started behind fails with it.

Runs of a plan that the caller holds are not on the board. While a rank settles, a second mistake on another
communicator may reach it; where ranks meet two in different orders the job ends.

Ranks of several nodes share no memory, and MPI reports nothing to a process inside a blocking call: there a rank that
errs waits, and ends the job.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from collectives import agreement
from collectives.board import ASKING, BEGUN, ENTERED, JOINED, LENGTH, NOTHING, TOLD, UNKNOWN, Board, Row
from collectives.errors import CollectiveError, WaitTimeout
from collectives.execution.plans import Plan
from collectives.loss import raises_rank_lost
from collectives.progress import PROGRESS

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.line import Line
    from collectives.execution.maker import Call


class Mistakes:
    """The calls of a communicator, as their mistakes concern all ranks.

    `zeros(call, in_place)` returns arrays to which the plan of a call can be bound.

    - `entered`: calls so far; `settled`: the call up to which mistakes are settled.
    - `row`: this rank's on the board; without one, numbers that nobody reads.
    """

    failure: Exception | None = None  # never one: while it waits it is among what is under way

    def __init__(self, comm: MPI.Intracomm, line: Line, zeros: Callable[[Call, bool], tuple[Any, Any]]):
        self.comm, self._line, self._zeros = comm, line, zeros
        self.entered = self.settled = 0
        self.row: Row = [0] * LENGTH
        self._count = 0  # of mistakes
        self._board: Board | None = None
        self._plans: list[tuple[Call, Plan]] = []

    def open(self, local: MPI.Intracomm) -> None:
        """Make the board, if there is none; `local` are the same ranks, which share memory. Collective."""
        if self._board is None and local.size > 1:
            self._board = Board(local)
            self.row = self._board.own
            atexit.register(self.free)  # some libraries fail where a window is left

    def add(self, call: Call, plan: Plan) -> None:
        """Give a new plan its number, alike on all ranks."""
        self._plans.append((call, plan))
        plan.number = len(self._plans)

    def forget(self) -> None:
        """Drop the plans."""
        self._plans.clear()

    def free(self) -> None:
        """Free the board. Collective."""
        board = self._give_up_board()
        if board is not None:
            board.free()

    def abandon(self) -> None:
        """Give the board up, since a rank is lost. Not collective."""
        self._give_up_board()

    def _give_up_board(self) -> Board | None:
        """Return the board, and know none from now on."""
        atexit.unregister(self.free)
        board, self._board, self.row = self._board, None, [0] * LENGTH
        return board

    def turn_to(self, plan: Plan, in_place: bool) -> None:
        """Note that blocking calls of a plan run from the entered one on."""
        self._change(self.entered, 4 * plan.number + in_place)

    def begin(self, call: int, plan: Plan | None, in_place: bool = False) -> None:
        """Note that this rank begins a call whose plan was started, or that runs nothing."""
        self._change(call, NOTHING if plan is None else 4 * plan.number + 2 + in_place)
        self.row[BEGUN] = call

    def _change(self, call: int, run: int) -> None:
        if self._board is not None:
            self._board.change(call, run)

    def is_told(self, call: int) -> bool:
        """Return whether a rank has told of a mistake in this call or an earlier one that is not settled."""
        return self.settled < self.row[TOLD] <= call

    def meet(self, what: str, error: CollectiveError | None, call: Call | None) -> None:
        """Return once all ranks ask about the call that this one has entered. If any runs it, settle, and raise."""
        if self._board is None:
            return
        board, entered = self._board, self.entered
        self.row[ASKING] = entered

        def is_known() -> bool:
            return self.is_told(entered) or board.last >= entered

        def is_met() -> bool:
            return is_known() or all(row[ASKING] >= entered for row in board.rows)

        self._wait(is_met, f"{what}: {error}" if error else "")
        if is_known():
            values = None if call is None else {**call.described(), "the call": "a new one, or with check=True"}
            self._settle(entered - 1, error, values, f"{what}: {error or 'a call that is new to this rank'}")

    @raises_rank_lost
    def join(self, plan: Plan, last: int = 0) -> NoReturn:
        """Settle what this rank was told of, after it has run the plan, in the call `last`; raise what is wrong."""
        call = self._plans[plan.number - 1][0]
        values = {**call.described(), "the call": "one as before"}
        self._settle(last or self.entered, None, values)

    def _settle(
        self, last: int, error: CollectiveError | None, values: dict[str, str] | None, problem: str = ""
    ) -> NoReturn:
        """Take part in all that any rank has begun after the call `last`; then raise the same error on all ranks."""
        board, self._line.is_halted, self._count = self._board, True, self._count + 1
        assert board is not None
        values = values and {**values, "the number of the call": str(self.entered)}
        told = self.row[TOLD] if self.is_told(self.entered) else self.entered
        for row in board.rows:
            if not self.settled < row[TOLD] <= told:
                row[TOLD] = told
        self.row[ENTERED], self.row[JOINED] = self.entered, self._count
        while (last := last + 1) <= self._last_begun(last, problem):
            self._take_part(board.runs(last), problem)
        self.entered = self.settled = max(row[ENTERED] for row in board.rows)
        self._wait(self.comm.Ibarrier().Test, problem or "two mistakes at the same time")
        self._line.is_halted = False
        try:
            agreement.share(self.comm, error, values=values)
        except CollectiveError as found:
            self._line.fail(found)
            raise
        raise AssertionError("no rank has erred")

    def _last_begun(self, call: int, problem: str) -> int:
        """Wait until any rank has begun a call, or all have joined; return the last call that any has begun."""
        board = self._board
        assert board is not None
        self._wait(lambda: board.last >= call or all(row[JOINED] >= self._count for row in board.rows), problem)
        return board.last

    def _take_part(self, runs: set[int], problem: str) -> None:
        """Run, with zeros, what other ranks run in a call."""
        plans = {run // 2 for run in runs}
        number, was_started = divmod(plans.pop(), 2)
        if plans or UNKNOWN in runs or number > len(self._plans):  # more than one, or one that this rank has dropped
            self._end_job(problem or "can't tell what others have begun since another rank's mistake")
        if not number:
            return
        call, plan = self._plans[number - 1]
        held = plan.send, plan.recv
        plan.bind(*self._zeros(call, any(run % 2 for run in runs)))
        try:
            if was_started:
                plan.prepare()
                self._wait(plan.take, problem)
            else:
                plan.run()
        except CollectiveError as found:
            if not found.alike:
                raise
        if held[0] is not Plan.send:  # somebody may hold the plan, and run it again
            plan.bind(*held)

    def _wait(self, is_done: Callable[[], bool], problem: str) -> None:
        """Advance what is under way until `is_done()`. With a `problem` end the job after PATIENCE seconds."""
        try:
            PROGRESS.wait_until(is_done, self, agreement.PATIENCE if problem else None)
        except WaitTimeout:
            self._end_job(problem)

    def _end_job(self, problem: str) -> NoReturn:
        """End the job with one line."""
        agreement.end_job(self.comm, f"rank {self.comm.rank}: {problem}")

    def progress(self) -> bool:
        """Let MPI pass messages of earlier calls on, and report a rank that was lost; nothing here advances."""
        self.comm.Iprobe()
        return False
