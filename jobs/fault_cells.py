"""The cells of the matrix of faults: what is hit, when, in which job, and how the job meets it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from fault_moments import EXIT, FAULTS, FINISH, KILL, MOMENTS, RAISE, RECOVERY, RESTORE, ROOTS, SET_UP, Hit

LAST = 6  # iterations
WORKFLOWS = {
    "SC-B": ["--workflow", "SC-B"],
    "SC-OB": ["--workflow", "SC-OB", "--drive", "hook"],
    "SC-OBR-hook": ["--workflow", "SC-OBR", "--drive", "hook"],
    "SC-OBR-helper": ["--workflow", "SC-OBR", "--drive", "helper"],
    "allreduce": ["--workflow", "SC-OBR", "--drive", "hook", "--sync", "allreduce"],
}
IN_TURN = "in-turn"
VICTIMS = ("root", "another", "two", IN_TURN)
WRITING = {"waiting": [], "async": ["--snapshot-async"]}
ENDS, MIRROR, SPARE = "stop", "mirror", "spare"
SHRINK = ["--on-rank-loss", "shrink"]
LOSS = {  # how the job meets a loss
    ENDS: [],
    "shrink": SHRINK,
    MIRROR: [*SHRINK, "--mirror-every", "1"],
    SPARE: [*SHRINK, "--spares", "1"],
}
SIZES, ITERATIONS = (3, 4), (-1, 0, 1, 2, 3, LAST)


class Cell(NamedTuple):
    """A cell of the matrix."""

    fault: str
    moment: str
    victims: str
    workflow: str
    ranks: int
    iteration: int
    writing: str
    loss: str = ENDS

    def __str__(self) -> str:
        return ",".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Return the cell that is written like this."""
        fault, moment, victims, workflow, ranks, iteration, *rest = text.split(",")
        return cls(fault, moment, victims, workflow, int(ranks), int(iteration), *rest)

    @property
    def hits(self) -> list[Hit]:
        """The faults of its ranks. During a recovery a rank is hit that another one's loss has begun."""
        last, now = self.ranks - 1, self.iteration
        ranks = {"root": [0], "another": [last], "two": [0, last], IN_TURN: [last, 0]}[self.victims]
        turn = self.victims == IN_TURN  # each an iteration later
        hits = [Hit(self.fault, self.moment, now + turn * k, rank) for k, rank in enumerate(ranks)]
        return [Hit(KILL, "forward", now, 1), *hits] if self.moment in RECOVERY else hits

    @property
    def goes_on(self) -> bool:
        """Whether the ranks that are left are to go on."""
        return self.loss != ENDS and self.fault != RAISE

    @property
    def launched(self) -> int:
        """The number of processes, with spares."""
        return self.ranks + (self.loss == SPARE)

    @property
    def is_there(self) -> bool:
        """Whether the moment can come: some are the root's, some have no watchdog, or come once."""
        return self._has_moment and self._has_iteration and self._has_victims

    @property
    def _has_moment(self) -> bool:
        if self.fault == EXIT and self.loss != ENDS:
            return False  # Open MPI reports no such process as lost: jobs/lab/mpi_exit.py
        if self.loss == MIRROR and self.workflow == "allreduce":
            return False  # there all ranks have the state
        return self.moment not in RECOVERY or self.loss != ENDS

    @property
    def _has_iteration(self) -> bool:
        if self.moment in (*SET_UP, RESTORE):
            return self.iteration == -1
        if self.moment in FINISH:
            return self.iteration == LAST - 3
        if self.iteration == LAST:  # the last loss and the last test follow the last update
            return self.moment in ("forward", "test")
        if self.moment == "broadcast" and self.workflow == "allreduce":
            return self.iteration == 0
        return self.iteration > 0 if self.moment in ROOTS else self.iteration >= 0

    @property
    def _has_victims(self) -> bool:
        if self.moment in ROOTS:
            return self.victims == "root"
        if self.moment in RECOVERY:
            return self.victims != IN_TURN and (self.victims != "two" or self.ranks > 3)
        if self.victims != IN_TURN:
            return True
        twice = self.iteration in range(LAST - 2) and self.moment not in FINISH
        return self.goes_on and twice and not (self.moment == "broadcast" and self.workflow == "allreduce")


def matrix() -> list[Cell]:
    """Return all cells."""
    axes = FAULTS, MOMENTS, VICTIMS, WORKFLOWS, SIZES, ITERATIONS, WRITING, LOSS
    return [cell for cell in itertools.starmap(Cell, itertools.product(*axes)) if cell.is_there]


def drawn(seed: int) -> Iterator[Cell]:
    """Yield the cells in an order drawn by a seed, the moments in turn."""
    cells, moments, numbers = matrix(), list(MOMENTS), random.Random(seed)
    numbers.shuffle(cells)
    numbers.shuffle(moments)
    turns = [[cell for cell in cells if cell.moment == moment] for moment in moments]
    return (cell for turn in itertools.zip_longest(*turns) for cell in turn if cell is not None)
