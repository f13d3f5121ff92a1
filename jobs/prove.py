"""The program behind prove_on_gpu.sh, which sets up the environment and starts it: runs steps and prints the table.

    python jobs/prove.py OUT [WORK]

The table has a line for each step: table.txt, table.md and table.json. proof.tar.gz holds tables, the steps' output and
caches; from it another machine goes on. Both are written anew after each step, beside and then renamed, so that a run
can end at any moment. They lie in OUT; logs and caches lie in WORK (default: OUT). Steps that do not run keep their
lines of earlier runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from prove_programs import Signals, wait
from prove_steps import WORKERS, Step, steps
from prove_table import Result, earlier, keep, pack, text_table, unpack

ROOT = Path(__file__).resolve().parents[1]
CODE = "scaffe", "collectives", "readers", "tests", "jobs"
NO_TESTS = 5  # pytest's exit code where no test was selected
PASSED, SKIPPED, FAILED, NOT_RUN = "passed", "skipped", "FAILED", "not run"
LEFT_OUT = r"SKIPPED \[(\d+)\] \S+ (.*)|not measured: ()(.*)"  # what a step says that it leaves out: how often, and why


def run(step: Step, log: Path, left: float, stopped: Callable[[], str] = str) -> Result:
    """Run a step, for `left` seconds at most, and until `stopped` returns the name of a signal."""
    if lacking := [module for module in step.needs if find_spec(module) is None]:
        return Result(step.name, SKIPPED, 0, f"skipped: no {' and no '.join(lacking)} here")
    if step.command[0].endswith("mpirun.sh") and shutil.which("mpirun") is None:
        return Result(step.name, SKIPPED, 0, "skipped: no mpirun here")
    if stopped() or left < step.seconds / 4:
        return Result(step.name, NOT_RUN, 0, f"{stopped()} came before" if stopped() else "too little time was left")
    start = time.monotonic()
    # Plans that were timed while other steps ran are not kept for those that measure speed.
    apart = {} if step.alone else {"XDG_CACHE_HOME": str(log.parent / "../cache/beside")}
    with log.open("w") as stream:
        print("+", *step.command, file=stream, flush=True)
        code = wait(step.command, stream, min(step.seconds, left), stopped, apart)
    result = judge(step, code, log.read_text(errors="replace"), round(time.monotonic() - start))
    if stopped() and code != 0:
        return replace(result, result=NOT_RUN, figures=f"{stopped()}: {result.figures}")
    return replace(result, result=NOT_RUN) if code is None and left < step.seconds else result


def judge(step: Step, code: int | None, text: str, seconds: int) -> Result:
    """Return the result of a step, from its exit code and output."""
    lines = [line.strip() for line in text.splitlines()]
    said = " ".join(_last(step.figures, lines).split())
    said = f"{step.heads} {said}".strip() if said else ""
    if code is None:
        return Result(step.name, FAILED, seconds, f"stopped after {seconds} s; {said or lines[-1]}")
    if absent := _last(step.missing, lines) if code else "":
        return Result(step.name, SKIPPED, seconds, f"skipped: {absent}{left_out(step, said, lines)}")
    if code == NO_TESTS or (code == 0 and "skipped" in said and "passed" not in said):
        return Result(step.name, SKIPPED, seconds, f"skipped: {_last('SKIPPED.*', lines) or said or lines[-1]}")
    return Result(step.name, FAILED if code else PASSED, seconds, (said or lines[-1]) + left_out(step, said, lines))


def left_out(step: Step, said: str, lines: list[str]) -> str:
    """Return what a step has left out, with the reasons, as it goes into the table."""
    found = [re.fullmatch(LEFT_OUT, line) for line in lines]
    reasons = [" ".join(group for group in one.groups() if group) for one in found if one]
    if "deselected" in said:
        last = max(i for i, word in enumerate(step.command) if word in ("-k", "-m"))
        reasons.append(f"deselected by {' '.join(step.command[last : last + 2])}")
    return f"; left out: {'; '.join(reasons)}" if reasons else ""


def _last(form: str, lines: list[str]) -> str:
    return next((line for line in reversed(lines) if re.match(form, line)), "")


def choose(all_steps: list[Step], wanted: str) -> list[Step]:
    """Return the steps that are wanted, all for "".

    `wanted` are groups, such as "a" or "alexnet-bf16", joined by commas: the steps that have all tags of one of them.
    Raises SystemExit for a group without steps.
    """
    groups = {group: {*group.split("-")} - {""} for group in wanted.split(",")}
    if unknown := [name for name, tags in groups.items() if not any(tags <= {*one.tags.split()} for one in all_steps)]:
        known = dict.fromkeys(tag for step in all_steps for tag in step.tags.split())
        raise SystemExit(f"prove_on_gpu.sh: no steps {', '.join(unknown)}; known: {', '.join(known)}")
    return [step for step in all_steps if any(tags <= {*step.tags.split()} for tags in groups.values())]


def code_of(root: Path = ROOT) -> str:
    """Return a digest of all code."""
    digest = hashlib.sha256()
    for path in sorted(path for name in CODE for path in (root / name).rglob("*")):
        if path.is_file() and path.suffix not in (".pyc", ".md") and not path.name.startswith("."):
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


class Proof:
    """One run: its steps, what is known of each, when it ends, and what says that a signal has ended it."""

    def __init__(
        self, out: Path, work: Path, all_steps: list[Step], end: float, how: str = "", stopped: Callable[[], str] = str
    ):
        self.out, self.work, self.all_steps, self.end, self.how, self.stopped = out, work, all_steps, end, how, stopped
        self.lines, self.code, self.lock = earlier(self.work), code_of(), threading.Lock()
        self.missed: list[str] = []  # the chosen steps that failed or did not run

    def mark(self, step: Step) -> str:
        """Return the mark of a result: of the code, and of the command with the form of the run."""
        command = hashlib.sha256(" ".join([self.how, *step.command[1:]]).encode()).hexdigest()
        return f"{self.code} {command[:6]}"

    def has(self, step: Step, any_code: bool = False) -> bool:
        """Return whether the step has passed in an earlier run, with this code unless `any_code`."""
        known, mark = self.lines.get(step.name), self.mark(step)
        if known is None or known.result != PASSED:
            return False
        return known.code == mark or (any_code and known.code[-6:] == mark[-6:])

    def run(self, chosen: Iterable[Step]) -> None:
        """Run the steps: those that time nothing beside one another, the longest first; then the others, one by one."""
        chosen = [*chosen]
        beside = sorted((step for step in chosen if not step.alone), key=lambda step: -step.seconds)
        with ThreadPoolExecutor(max(1, WORKERS)) as pool:
            list(pool.map(self.take, beside))
        for step in chosen:
            if step.alone:
                self.take(step)

    def take(self, step: Step) -> None:
        """Run a step, add its line to the table, and pack all."""
        log = self.work / "logs" / f"{re.sub('[^a-z0-9]+', '_', step.name.lower())}.log"
        result = replace(run(step, log, self.end - time.monotonic(), self.stopped), code=self.mark(step))
        with self.lock:
            if result.result in (FAILED, NOT_RUN):
                self.missed.append(step.name)
            if result.result != NOT_RUN or result.seconds or step.name not in self.lines:  # else an earlier run's stays
                self.lines[step.name] = result
            keep(self.work, self.results())
            pack(self.work, self.out)
            print(f"{result.result:8} {step.name} ({result.seconds} s)", file=sys.stderr, flush=True)
            if result.result == FAILED:
                print(*log.read_text(errors="replace").splitlines()[-15:], sep="\n", file=sys.stderr, flush=True)

    def results(self) -> list[Result]:
        """Return the table's lines."""
        return [self.lines[step.name] for step in self.all_steps if step.name in self.lines]


def main() -> int:
    """Run the steps and print the table; return the exit code."""
    ended = Signals()
    ended.catch()
    out, work, given = Path(sys.argv[1]), Path(sys.argv[-1]), os.environ.get
    quick, parity, wanted, resume = (given(name, "") for name in ("QUICK", "PARITY", "STEPS", "RESUME"))
    all_steps = [*steps(bool(quick), bool(given("REHEARSE")), bool(parity))]
    chosen = choose(all_steps, wanted)
    unpack(work, out)
    if parity:
        os.environ["SCAFFE_CASES"] = str(_as_cases(work, Path(parity)))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # installed plugins may warn or slow the tests
    (work / "logs").mkdir(exist_ok=True)
    end = time.monotonic() + float(given("SECONDS_IN_ALL") or (480 if quick else 3600))
    proof = Proof(out, work, all_steps, end, given("REHEARSE", ""), ended.name)
    again = bool(wanted and not resume)
    proof.run(step for step in chosen if again or not proof.has(step, any_code=bool(resume)))
    pack(work, out)  # also where no step was left
    print(text_table(proof.results()), end="", flush=True)
    return 128 + ended.number if ended.number else int(bool(proof.missed))


def _as_cases(work: Path, parity: Path) -> Path:
    """Return a folder with a link `parity` to the cases, as the tests expect it."""
    link = work / "cases" / "parity"
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(parity)
    return link.parent


if __name__ == "__main__":
    sys.exit(main())
