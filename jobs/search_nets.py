"""Random nets on several ranks against one: the jobs of jobs/search.py nets, and what they end with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fault_jobs import LEAST_SHARE, share
from search_draw import MOST_RANKS, Case, draw

HERE = Path(__file__).resolve().parent
HUNG, ENDED = "hung", "ended"  # results of a case, beside those of search_ranks.py
GOOD = "equal", "amplifies"
JUDGED = *GOOD, "wrong", "refused"
AT_ONCE = 100  # cases of one job
LOOK, LONGEST_END = 0.1, 5.0  # seconds


@dataclass(frozen=True)
class Result:
    """How a case ended, the difference of its parameters, what rounding changes on one rank, and where or why."""

    case: int
    result: str
    apart: float = 0.0
    rounding: float = 0.0
    what: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return self.result in GOOD


class NetJob:
    """One mpirun, whose ranks run cases, and the file that they write to."""

    def __init__(self, seed: int, cases: Sequence[Case], folder: Path, seconds: float):
        self.cases, self.seconds = cases, seconds
        self.path = folder / "results"
        self.path.write_text("")
        ranks = max(case.ranks for case in cases) if len(cases) == 1 else MOST_RANKS
        command = [HERE / "mpirun.sh", "-n", ranks, sys.executable, HERE / "search_ranks.py", seed, self.path]
        env = {**os.environ, "PYTHONPATH": str(HERE.parent), "SCAFFE_VENV": sys.prefix, "OMP_NUM_THREADS": "1"}
        with (folder / "log").open("w") as log:
            words = [*map(str, command), *(str(case.number) for case in cases)]
            self.process = subprocess.Popen(
                words, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._lines = 0

    def results(self) -> Iterator[Result]:
        """Yield the results as they come, and those of the cases that hang or end the job. Other cases have none."""
        try:
            yield from self._results()
        finally:
            self.end()

    def _results(self) -> Iterator[Result]:
        waited, begun = 0.0, time.monotonic()
        under_way: dict[int, list[str]] = {}
        while True:
            is_over = self.process.poll() is not None  # before the last lines are read
            lines = self._new_lines()
            for line in lines:
                number = line.pop("case")
                if "result" in line:
                    under_way.pop(number, None)
                    yield Result(number, **line)
                else:
                    under_way.setdefault(number, []).append(line.get("raised", ""))
            if is_over:
                break
            now = time.monotonic()
            waited = 0.0 if lines else waited + min(now - begun, 1) * max(share(), LEAST_SHARE)
            begun = now
            if waited > self.seconds:
                break
            time.sleep(LOOK)
        result = HUNG if waited > self.seconds else ENDED
        for number, said in under_way.items():
            errors = [text.strip().splitlines()[-1] for text in said if text]
            yield Result(number, result, what="; ".join(sorted(set(errors))))

    def _new_lines(self) -> list[dict[str, Any]]:
        lines = self.path.read_text().rpartition("\n")[0].splitlines()  # whole ones: ranks may be writing
        new, self._lines = lines[self._lines :], len(lines)
        return [json.loads(line) for line in new]

    def end(self) -> None:
        """Have the ranks that run still write their stacks, and end the job: mpirun passes signals on."""
        for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(number)
            try:
                self.process.wait(LONGEST_END)
                return
            except subprocess.TimeoutExpired:
                continue


def run_nets(seed: int, numbers: Sequence[int], folder: Path, seconds: float) -> Iterator[Result]:
    """Yield the result of each case. One that hangs, or ends its job, is tried again alone; the others go on."""
    left = list(numbers)
    while left:
        cases = [draw(seed, number) for number in left[:AT_ONCE]]
        for result in NetJob(seed, cases, folder, seconds).results():
            left.remove(result.case)
            yield result if result.result in JUDGED else alone(seed, result, folder, seconds)


def alone(seed: int, result: Result, folder: Path, seconds: float) -> Result:
    """Return the result of a case that had none beside others: what it did there, and what it does alone."""
    [again] = NetJob(seed, [draw(seed, result.case)], folder, seconds).results()
    said = " ".join(filter(None, [result.what, f"(alone: {again.result} {again.what})"]))
    return replace(result, what=said)
