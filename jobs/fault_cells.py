"""The cells of the matrix of faults: what is hit, when, in which job, and how the job meets it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from fault_moments import (
    CALL,
    CUT,
    EXIT,
    FAULTS,
    FINISH,
    KILL,
    MOMENTS,
    RAISE,
    RECOVERY,
    RESTORE,
    ROOTS,
    SET_UP,
    START,
    STOP,
    Hit,
)

LAST = 6  # iterations
INSTANCES = ["--workflow", "SC-OBR", "--instances", "2", "--gather", "slices", "--oversubscribe"]
ALLREDUCE = ["--sync", "allreduce"]
WORKFLOWS = {
    "SC-B": ["--workflow", "SC-B"],
    "SC-OB": ["--workflow", "SC-OB", "--drive", "hook"],
    "SC-OBR-hook": ["--workflow", "SC-OBR", "--drive", "hook"],
    "SC-OBR-helper": ["--workflow", "SC-OBR", "--drive", "helper"],
    "allreduce": ["--workflow", "SC-OBR", "--drive", "hook", *ALLREDUCE],
    "instances": INSTANCES,  # several in each rank
    "instances-allreduce": [*INSTANCES, *ALLREDUCE],
}
IN_TURN = "in-turn"
VICTIMS = ("root", "another", "two", IN_TURN)
WRITING = {"waiting": ["--no-snapshot-async"], "async": ["--snapshot-async"]}
ENDS, MIRROR, SPARE = "stop", "mirror", "spare"
SHRINK = ["--on-rank-loss", "shrink"]
LOSS = {  # how the job meets a loss
    ENDS: [],
    "shrink": SHRINK,
    MIRROR: [*SHRINK, "--mirror-every", "1"],
    SPARE: [*SHRINK, "--spares", "1"],
}
NODE, NET, PAIRS = "node", "net", "pairs"
WHERE = {  # the ranks of a node, and the faults
    NODE: (0, [fault for fault in FAULTS if fault != CUT]),  # all ranks on one, which is this machine
    NET: (1, [KILL, STOP, CUT]),  # emulated nodes
    PAIRS: (2, [CUT]),  # of the other faults other ranks would share a node than in an undisturbed run
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
    where: str = NODE

    def __str__(self) -> str:
        return ",".join(map(str, self[:-1] if self.where == NODE else self))

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Return the cell that is written like this."""
        fault, moment, victims, workflow, ranks, iteration, *rest = text.split(",")
        return cls(fault, moment, victims, workflow, int(ranks), int(iteration), *rest)

    @property
    def hits(self) -> list[Hit]:
        """The faults of its ranks. During a recovery a rank is hit that another one's loss has begun."""
        last, now = self.ranks - 1, self.iteration
        named = {"root": [0], "another": [last], "two": [0, last], IN_TURN: [last, 0]}
        ranks = named.get(self.victims) or [int(rank) for rank in self.victims.split("+")]
        turn = self.victims == IN_TURN  # each an iteration later
        hits = [Hit(self.fault, self.moment, now + turn * k, rank) for k, rank in enumerate(ranks)]
        return [Hit(KILL, "forward", now, 1), *hits] if self.moment in RECOVERY else hits

    def least_hits(self, has_ended: bool) -> int:
        """Return how many ranks are hit at least, by whether the job has ended by itself.

        It may end before the second rank comes to its moment, or go on to the end before the N-th call.
        """
        if has_ended:
            return 1
        return 0 if self.moment.startswith(CALL) else len(self.hits)

    @property
    def goes_on(self) -> bool:
        """Whether the ranks that are left are to go on."""
        return self.loss != ENDS and self.fault not in (RAISE, EXIT) and self.moment not in START

    @property
    def is_everywhere(self) -> bool:
        """Whether every rank has the state, and broadcasts parameters at the begin alone."""
        return set(ALLREDUCE) <= set(WORKFLOWS[self.workflow])

    @property
    def launched(self) -> int:
        """The number of processes, with spares."""
        return self.ranks + (self.loss == SPARE)

    @property
    def apart(self) -> list[set[int]]:
        """The processes of each node whose link is cut, by their ranks at the start, and last those of all others."""
        size, _ = WHERE[self.where]
        nodes = [{*range(first, min(first + size, self.launched))} for first in range(0, self.launched, size or 99)]
        cut = [nodes[hit.rank // size] for hit in self.hits if hit.fault == CUT]
        return [*cut, {*range(self.launched)}.difference(*cut)]

    @property
    def is_there(self) -> bool:
        """Whether the moment can come: some are the root's, some have no watchdog, or come once."""
        return self._has_moment and self._has_iteration and self._has_victims

    @property
    def _has_moment(self) -> bool:
        if self.moment == SET_UP[0] and self.fault == CUT and self.loss == ENDS:
            return False  # the watchdog over stalls runs from the end of the set-up, and before it within hosts alone
        if self.loss == MIRROR and self.is_everywhere:
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
        if self.moment == "broadcast" and self.is_everywhere:
            return self.iteration == -1  # once, before the first test
        return self.iteration > 0 if self.moment in ROOTS else self.iteration >= 0

    @property
    def _has_victims(self) -> bool:
        if self.fault == CUT and self.victims not in ("root", "another"):
            return False  # then no side has most of the ranks
        if self.where == PAIRS and (self.loss == SPARE or self.moment in RECOVERY):
            return False
        if self.moment in ROOTS:
            return self.victims == "root"
        if self.moment in RECOVERY:
            return self.victims != IN_TURN and (self.victims != "two" or self.ranks > 3)
        if self.victims != IN_TURN:
            return True
        twice = self.iteration in range(LAST - 2) and self.moment not in FINISH
        return self.goes_on and twice and not (self.moment == "broadcast" and self.is_everywhere)


def matrix(where: str = NODE) -> list[Cell]:
    """Return all cells of a place."""
    moments = [moment for moment in MOMENTS if moment not in START]
    axes = WHERE[where][1], moments, VICTIMS, WORKFLOWS, SIZES, ITERATIONS, WRITING, LOSS, [where]
    cells = [cell for cell in itertools.starmap(Cell, itertools.product(*axes)) if cell.is_there]
    return [*cells, *starts()] if where == NODE else cells


def starts() -> list[Cell]:
    """Return the cells in which some of a host's ranks, each choice of them, are lost before the ranks know others."""
    chosen = [(n, some) for n in SIZES for k in range(1, n) for some in itertools.combinations(range(n), k)]
    return [
        Cell(KILL, moment, "+".join(map(str, some)), "SC-B", n, -1, "waiting", "shrink")
        for moment in START
        for n, some in chosen
    ]


def drawn(seed: int, *where: str) -> Iterator[Cell]:
    """Yield the cells of these places, NODE without any, in an order drawn by a seed, the moments in turn."""
    cells, moments, numbers = (
        [cell for one in where or [NODE] for cell in matrix(one)],
        list(MOMENTS),
        random.Random(seed),
    )
    numbers.shuffle(cells)
    numbers.shuffle(moments)
    turns = [[cell for cell in cells if cell.moment == moment] for moment in moments]
    return (cell for turn in itertools.zip_longest(*turns) for cell in turn if cell is not None)
