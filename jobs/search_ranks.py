"""The ranks of jobs/search.py nets: train random nets on several ranks and on one, and compare.

    jobs/mpirun.sh -n 8 python jobs/search_ranks.py SEED RESULTS CASE CASE ...

Cases of few ranks run side by side. Appends a line of JSON to the file RESULTS for each case that begins, for each
rank that raises an error, and for each case that is judged.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI
from search_draw import ENGINES, ITERATIONS, Case, Training, draw

from scaffe.compute import Compute
from scaffe.monitor.log import log
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

EXACT = 3.5e-6  # of the largest magnitude: what rounding alone may change
LEAST = 1e-3  # the largest magnitude counts as at least this: that of a mean of 0 is its rounding
AMPLIFIED = 1e-4  # a value that rounding changes more is not judged
ROOM = 10.0  # times what rounding changes on one rank
UNIT = 2.0**-23  # by which parameters are disturbed, to see what rounding becomes
COARSER = {"bf16": 2.0**15, "float16": 2.0**13, "int8": 2.0**16}  # numbers of gradients than float32's, times
PAUSE = 0.002  # seconds between two looks of a rank that waits, so that it leaves the core to others
SHOWN = re.compile(r"(Iteration \d+).*, (loss) = (\S+)|(Test|Train) net output #\d+: (\S+) = (\S+)")
DISTURBED = "disturbed"
LOGGED, SIX_DIGITS = "logged", 1.1e-5  # a number in the log, and its rounding
EQUAL, AMPLIFIES, WRONG, REFUSED = "equal", "amplifies", "wrong", "refused"  # results of a case


Found = dict[str, np.ndarray]  # what a training ended with: parameters and statistics, and the numbers that it logged


class Outputs(logging.Handler):
    """The values of outputs in the log's lines."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the value of a line, if it has one."""
        for words in SHOWN.findall(record.getMessage()):
            kind, name, value = filter(None, words)
            self.found.append((f"{kind} {name}", float(value)))

    def comparable(self, divides_passes: bool) -> Found:
        """Return the values that any number of ranks logs alike: losses, and all outputs of test nets.

        Where passes divide a batch, the train net's outputs are those of a part of it.
        """
        kinds = r"Test|Iteration" if divides_passes else r"Test|Iteration|Train loss"
        found = [(name, value) for name, value in self.found if re.match(kinds, name)]
        return {f"{LOGGED} {k}, {name}": np.array(value) for k, (name, value) in enumerate(found)}


def train(training: Training, comm: MPI.Intracomm, disturbed: bool = False) -> Found:
    """Return what a training ends with, `disturbed` by a rounding of each parameter. Collective over its ranks.

    Raise AssertionError where a rank has other parameters than the root.
    """
    outputs = Outputs()
    log.addHandler(outputs)
    compute = Compute(engine=training.engine, deterministic=True)
    try:
        solver = Solver(training.param(), world=World(comm), compute=compute, **training.records())
        if disturbed:
            disturb(solver)
        solver.step(ITERATIONS)
        if solver.parts.tests:
            solver.test_all()
        found = parameters(solver) | outputs.comparable(training.divides_passes)
        solver.close()
    finally:
        log.removeHandler(outputs)
    everywhere = comm.allgather(solver.net.packed.data.tobytes())
    others = [rank for rank, values in enumerate(everywhere) if values != everywhere[0]]
    assert not others, f"ranks {others} have other parameters than the root"
    return found


def disturb(solver: Solver) -> None:
    """Change each learned parameter by a rounding."""
    random = np.random.default_rng(0)
    for one in solver.net.parameters:
        if not one.statistic:
            one.blob.data[...] *= 1 + random.choice([-UNIT, 0, UNIT], one.blob.shape).astype(np.float32)


def parameters(solver: Solver) -> dict[str, np.ndarray]:
    """Return the parameters that are learned, and the sums of each BatchNorm divided by their weight."""
    found = {one.label: one.blob.data.copy() for one in solver.net.parameters if not one.statistic}
    for name, blobs in solver.net.params.items():
        if solver.net.layer_dict[name].param.type == "BatchNorm":
            found |= {f"{name}[{i}]": blobs[i].data / blobs[2].data for i in (0, 1)}
    return found


def apart(ours: Found, theirs: Found) -> dict[str, float]:
    """Return the largest difference of two trainings' values, by name, as a share of the largest of `theirs`."""
    return {name: _apart(values, theirs[name], _least(name)) for name, values in ours.items()}


def _apart(ours: np.ndarray, theirs: np.ndarray, least: float) -> float:
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), least))


def _least(name: str) -> float:
    return 1.0 if name.startswith(LOGGED) else LEAST


@dataclass(frozen=True)
class Judged:
    """How a case ended; of the value that differs most: its difference, what rounding changes of it, and its name."""

    result: str
    apart: float = 0.0
    rounding: float = 0.0
    what: str = ""


def judge(several: Found, alone: dict[str, Found], engine: str, slack: float = 1.0) -> Judged:
    """Compare a training of several ranks with those of one: by each engine, and disturbed.

    `slack` multiplies the differences that are allowed: messages were rounded to so much coarser numbers.
    """
    if several.keys() != alone[engine].keys():
        return Judged(WRONG, what=f"only on one side: {sorted(several.keys() ^ alone[engine].keys())}")
    found, first = apart(several, alone[engine]), alone[ENGINES[0]]
    spreads = [apart(alone[name], first) for name in (ENGINES[1], DISTURBED)]
    rounding = {name: max(spread[name] for spread in spreads) for name in found}
    judged = [name for name in found if rounding[name] <= AMPLIFIED]
    if len(judged) < len(found) / 2:
        return Judged(AMPLIFIES, what=f"only {len(judged)} of {len(found)} values can be judged")
    excess = {name: found[name] / max(_exact(name), ROOM * rounding[name]) / slack for name in judged}
    name = max(excess, key=lambda one: (not np.isfinite(excess[one]), excess[one]))
    return Judged(EQUAL if excess[name] <= 1 else WRONG, found[name], rounding[name], name)


def _exact(name: str) -> float:
    return SIX_DIGITS if name.startswith(LOGGED) else EXACT


# The ranks of a case.


class Ranks:
    """The ranks that run cases, and the file they write to."""

    def __init__(self, comm: MPI.Intracomm, path: str):
        self.comm = comm
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def say(self, number: int, **fields: Any) -> None:
        """Append a line to the file."""
        os.write(self.file, (json.dumps({"case": number, **fields}) + "\n").encode())

    def run(self, seed: int, rounds: Sequence[Sequence[int]]) -> None:
        """Run all cases. Collective."""
        for numbers in rounds:
            cases = [draw(seed, number) for number in numbers]
            mine = [k for k, case in enumerate(cases) for _ in range(case.ranks)][self.comm.rank :][:1]
            patiently(self.comm.Ibarrier())
            comm = self.comm.Split(mine[0] if mine else MPI.UNDEFINED)
            if mine:
                self.run_case(cases[mine[0]], comm)
                comm.Free()

    def run_case(self, case: Case, comm: MPI.Intracomm) -> None:
        """Run a case on the ranks of `comm`, and write how it ended. Collective."""
        number = case.number
        if comm.rank == 0:
            self.say(number, begins=True)
        alone = self._alone(case, comm)
        several = attempt(lambda: train(case.several, comm))
        if isinstance(several, str):
            self.say(number, rank=comm.rank, raised=several)
        patiently(comm.Ibarrier())
        failed = [one for one in comm.allgather(isinstance(several, str) and several) if one]
        if comm.rank == 0:
            failed += [one for one in alone.values() if isinstance(one, str)]
            slack = COARSER.get(case.several.run.get("gradient_numbers", ""), 1.0)
            given = several, alone, case.several.engine, slack
            judged = Judged(REFUSED, what=last_line(failed[0])) if failed else judge(*given)
            self.say(number, **asdict(judged))

    def _alone(self, case: Case, comm: MPI.Intracomm) -> dict[str, Found | str]:
        """Return what the trainings on one rank end with, each by another rank. Collective."""
        given = {name: (replace(case.alone, engine=name), False) for name in ENGINES}
        given[DISTURBED] = replace(case.alone, engine=ENGINES[0]), True
        mine = [name for k, name in enumerate(given) if k % comm.size == comm.rank]
        found = {name: attempt(lambda name=name: train(given[name][0], MPI.COMM_SELF, given[name][1])) for name in mine}
        patiently(comm.Ibarrier())
        return {name: one for part in comm.allgather(found) for name, one in part.items()}


def attempt(work: Callable[[], Found]) -> Found | str:
    """Return `work()`, or the traceback of its error."""
    try:
        return work()
    except Exception:
        return traceback.format_exc()


def last_line(text: str) -> str:
    """Return a traceback's error."""
    return text.strip().splitlines()[-1]


def patiently(request: MPI.Request) -> None:
    """Wait, and leave the core to others meanwhile."""
    while not request.Test():
        time.sleep(PAUSE)


def rounds(cases: Sequence[Case], ranks: int) -> list[list[int]]:
    """Return the numbers of the cases that run at the same time on so many ranks: each in the first round with room."""
    found: list[tuple[int, list[int]]] = []
    for case in cases:
        fitting = [k for k, (left, _) in enumerate(found) if left >= case.ranks]
        k = fitting[0] if fitting else len(found)
        left, numbers = found[k] if fitting else (ranks, [])
        found[k : k + 1] = [(left - case.ranks, [*numbers, case.number])]
    return [numbers for _, numbers in found]


def main(seed: str, path: str, *numbers: str) -> None:
    """Run the cases of the command line."""
    with open(f"{path}.{MPI.COMM_WORLD.rank}.stack", "w") as stack:
        faulthandler.register(signal.SIGUSR2, stack)
        log.handlers, log.propagate = [logging.NullHandler()], False
        log.setLevel(logging.INFO)  # a case's root can be any rank
        cases = [draw(int(seed), int(number)) for number in numbers]
        Ranks(MPI.COMM_WORLD, path).run(int(seed), rounds(cases, MPI.COMM_WORLD.size))


if __name__ == "__main__":
    main(*sys.argv[1:])
