"""The program behind prove_on_gpu.sh, which sets up the environment and starts it: runs steps and prints the table.

    python jobs/prove.py OUT

The output of a step goes to OUT/logs. The table has a line for each step. It is printed at the end, and stored as
table.txt, table.md and table.json. Steps that do not run keep their lines of earlier runs. OUT/proof.tar.gz holds
tables, logs and caches, from which another machine goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from prove_steps import WORKERS, Step, steps
from prove_table import Result, earlier, keep, pack, text_table, unpack

ROOT = Path(__file__).resolve().parents[1]
CODE = "scaffe", "collectives", "readers", "tests", "jobs"
NO_TESTS = 5  # pytest's exit code where no test was selected
PASSED, SKIPPED, FAILED, NOT_RUN = "passed", "skipped", "FAILED", "not run"


def run(step: Step, log: Path, left: float) -> Result:
    """Run a step, for `left` seconds at most."""
    if lacking := [module for module in step.needs if find_spec(module) is None]:
        return Result(step.name, SKIPPED, 0, f"skipped: no {' and no '.join(lacking)} here")
    if step.command[0].endswith("mpirun.sh") and shutil.which("mpirun") is None:
        return Result(step.name, SKIPPED, 0, "skipped: no mpirun here")
    if left < step.seconds / 4:
        return Result(step.name, NOT_RUN, 0, "too little time was left")
    start = time.monotonic()
    with log.open("w") as stream:
        print("+", *step.command, file=stream, flush=True)
        code = _wait(step.command, stream, min(step.seconds, left))
    result = judge(step, code, log.read_text(errors="replace"), round(time.monotonic() - start))
    return replace(result, result=NOT_RUN) if code is None and left < step.seconds else result


def _wait(command: list[str], stream, seconds: float) -> int | None:
    """Run a program and end its whole process group; return its exit code, None after the time limit."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):  # on SIGTERM mpirun ends its ranks
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)


def judge(step: Step, code: int | None, text: str, seconds: int) -> Result:
    """Return the result of a step, from its exit code and output."""
    lines = [line.strip() for line in text.splitlines()]
    said = " ".join(_last(step.figures, lines).split())
    said = f"{step.heads} {said}".strip() if said else ""
    if code is None:
        return Result(step.name, FAILED, seconds, f"stopped after {seconds} s; {said or lines[-1]}")
    if absent := _last(step.missing, lines) if code else "":
        return Result(step.name, SKIPPED, seconds, f"skipped: {absent}")
    if code == NO_TESTS or (code == 0 and "skipped" in said and "passed" not in said):
        return Result(step.name, SKIPPED, seconds, f"skipped: {_last('SKIPPED.*', lines) or said or lines[-1]}")
    return Result(step.name, FAILED if code else PASSED, seconds, said or lines[-1])


def _last(form: str, lines: list[str]) -> str:
    return next((line for line in reversed(lines) if re.match(form, line)), "")


def choose(all_steps: list[Step], wanted: str) -> list[Step]:
    """Return the steps of the wanted groups, all for "". Raises SystemExit for an unknown group."""
    groups = dict.fromkeys(step.group for step in all_steps)
    names = wanted.split(",") if wanted else list(groups)
    if unknown := [name for name in names if name not in groups]:
        raise SystemExit(f"prove_on_gpu.sh: no steps {', '.join(unknown)}; known: {', '.join(groups)}")
    return [step for step in all_steps if step.group in names]


def code_of(root: Path = ROOT) -> str:
    """Return a digest of all code."""
    digest = hashlib.sha256()
    for path in sorted(path for name in CODE for path in (root / name).rglob("*")):
        if path.is_file() and path.suffix not in (".pyc", ".md") and not path.name.startswith("."):
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


class Proof:
    """One run: its steps, what is known of each, and when it ends."""

    def __init__(self, out: Path, all_steps: list[Step], end: float, how: str = ""):
        self.out, self.all_steps, self.end, self.how = out, all_steps, end, how
        self.lines, self.code, self.lock = earlier(out), code_of(), threading.Lock()

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
        """Run the steps: those that measure no speed beside one another, the longest first, then the others alone."""
        chosen = sorted(chosen, key=lambda step: 0 if step.alone else -step.seconds)
        with ThreadPoolExecutor(max(1, WORKERS)) as pool:
            list(pool.map(self.take, (step for step in chosen if not step.alone)))
        for step in chosen:
            if step.alone:
                self.take(step)

    def take(self, step: Step) -> None:
        """Run a step and add its line to the table."""
        log = self.out / "logs" / f"{re.sub('[^a-z0-9]+', '_', step.name.lower())}.log"
        result = replace(run(step, log, self.end - time.monotonic()), code=self.mark(step))
        with self.lock:
            self.lines[step.name] = result
            keep(self.out, self.results())
            print(f"{result.result:8} {step.name} ({result.seconds} s)", file=sys.stderr, flush=True)
            if result.result == FAILED:
                print(*log.read_text(errors="replace").splitlines()[-15:], sep="\n", file=sys.stderr, flush=True)

    def results(self) -> list[Result]:
        """Return the table's lines."""
        return [self.lines[step.name] for step in self.all_steps if step.name in self.lines]


def main() -> int:
    """Run the steps and print the table; return the exit code."""
    out, given = Path(sys.argv[1]), os.environ.get
    quick, parity, wanted, resume = (given(name, "") for name in ("QUICK", "PARITY", "STEPS", "RESUME"))
    all_steps = [*steps(bool(quick), bool(given("REHEARSE")), bool(parity))]
    chosen = choose(all_steps, wanted)
    unpack(out)
    if parity:
        os.environ["SCAFFE_CASES"] = str(_as_cases(out, Path(parity)))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # installed plugins may warn or slow the tests
    (out / "logs").mkdir(exist_ok=True)
    end = time.monotonic() + float(given("SECONDS_IN_ALL") or (480 if quick else 3600))
    proof = Proof(out, all_steps, end, given("REHEARSE", ""))
    again = bool(wanted and not resume)
    try:
        proof.run(step for step in chosen if again or not proof.has(step, any_code=bool(resume)))
    finally:
        pack(out)
    print(text_table(proof.results()), end="")
    return int(any(proof.lines[step.name].result in (FAILED, NOT_RUN) for step in chosen))


def _as_cases(out: Path, parity: Path) -> Path:
    """Return a folder with a link `parity` to the cases, as the tests expect it."""
    link = out / "cases" / "parity"
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(parity)
    return link.parent


if __name__ == "__main__":
    sys.exit(main())
