"""The steps of prove_on_gpu.sh, which sets up the environment and starts this program.

    python jobs/prove.py OUT

A step is a program with a time limit; its output goes to OUT/logs. The table has a line for each step. It is printed at
the end, and stored as table.txt, table.md and table.json. Steps that are not chosen keep their lines of earlier runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

PYTHON = [sys.executable]
MPI = ["-p", "pytest_mpi"] if find_spec("pytest_mpi") else []
PYTEST = [*PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", *MPI, "-W", "default"]  # other libraries warn
RANKS = [*PYTHON, "-m", "mpi4py", "-m", "pytest", "--with-mpi", "-m", "mpi", *PYTEST[3:]]
DEVICE_TESTS = "tests/device_tests"
CUDA_TESTS = "tests/scaffe_tests/engines/cuda"
SUMMARY = r"\d+ (?:passed|failed|skipped|error).* in .*"
NETS = "alexnet", "googlenet", "resnet50", "vgg16", "cifar10_quick", "lenet"
NO_TESTS = 5  # pytest's exit code where no test was selected


@dataclass
class Step:
    """A program to run: `group` selects it, `seconds` is its time limit, `needs` are the modules that it requires."""

    name: str
    group: str
    command: list[str]
    seconds: int
    needs: tuple[str, ...] = ()
    figures: str = SUMMARY  # the last line of the output that matches goes into the table
    missing: str = "(?!)"  # matches a line that says that there is nothing to measure
    heads: str = ""  # the names of its figures


@dataclass
class Result:
    """A line of the table."""

    step: str
    result: str
    seconds: int
    figures: str
    when: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M"))


def steps(quick: bool, rehearse: bool, parity: bool) -> Iterator[Step]:
    """Yield all steps."""
    device = "cpu" if rehearse else "cuda"
    mpi = "mpi4py", "pytest_mpi"
    yield Step("machine", "machine", [*PYTHON, "-m", "scaffe", "device-query"], 60, figures="GPUs?( 0)?: .*")
    files = f"{CUDA_TESTS}/test_cuda_kernels.py", "tests/collectives_tests/execution/test_device_kernels.py"
    yield Step("kernels compile", "kernels", [*PYTEST, *files, *_chosen(quick, "not sm_75 and not sm_80")], 180)
    layers, few = [*PYTEST, f"{CUDA_TESTS}/test_layers_on_devices.py"], "Pooling or LRN" if rehearse else "auto"
    yield Step("layers against numpy", "layers", [*layers, *_chosen(quick, few)], 300)
    solvers = [*PYTEST, f"{CUDA_TESTS}/test_device_arrays.py", "-k", "kernel or dropout"]
    yield Step("solvers against numpy", "solvers", solvers, 200)
    products = [f"{CUDA_TESTS}/test_cuda_{name}.py" for name in ("layouts", "plans")]
    convolutions = f"{DEVICE_TESTS}/test_convolution_cuda.py"
    yield Step("convolutions, products", "products", [*PYTEST, convolutions, *products], 300)
    batches = [f"{CUDA_TESTS}/test_{name}.py" for name in ("image_transform", "data_on_devices")]
    batches.append("tests/scaffe_tests/devices/test_ahead.py")
    yield Step("batches, transforms", "batches", [*PYTEST, *batches], 200)
    if parity:
        cases = "(strict or cuda) and not onednn" if not (rehearse and quick) else "cuda and (lrn or pool)"
        parity_tests = [*PYTEST, "tests/scaffe_tests/layers/test_parity.py", "-k", cases]
        yield Step("layers against Caffe", "parity", parity_tests, 300)
    for ranks in (1, 2) if rehearse or quick else (1, 2, 4):
        tests = [*RANKS, "tests/mpi_tests/test_training_on_devices.py" if rehearse else DEVICE_TESTS]
        yield Step(f"training, collectives: {ranks}", "ranks", [*_mpirun(ranks), *tests], 150, mpi)
    yield from _trainings(quick, device)
    yield from _benchmarks(quick, rehearse)


def _trainings(quick: bool, device: str) -> Iterator[Step]:
    """Yield the steps that train and compare."""
    ranks = "1,2" if quick else "1,2,4"
    lenet = [*PYTHON, "jobs/prove_lenet.py", "--device", device, "--ranks", ranks]
    if quick:
        lenet += ["--iterations", "100"]
    yield Step("LeNet on digits", "lenet", lenet, 240, ("lmdb", "sklearn", "mpi4py"), "accuracy .*")


def _benchmarks(quick: bool, rehearse: bool) -> Iterator[Step]:
    """Yield the benchmarks."""
    rehearsal = ["--rehearse"] if rehearse else []
    mebibytes = 1 if rehearse else 64
    for ranks in (2,) if quick else (2, 4):
        bench = [*_mpirun(ranks), *PYTHON, "-m", "collectives.bench", "reduce", "-c", "-i", "20", "-x", "5"]
        bench += ["-m", f"{mebibytes << 20}:{mebibytes << 20}", "--algorithm", "slices,auto,mpi"]
        bench += [] if rehearse else ["-d", "cuda"]
        name = f"reduce of {mebibytes} MiB: {ranks}"
        heads = "bytes, slices us, checked, auto us, mpi us, slices/mpi, auto/mpi:"
        yield Step(name, "reduce", bench, 90, ("mpi4py",), r"\d+\s.*", "collectives.bench: .*not yet.*", heads)
    kernels = [*PYTHON, "jobs/bench/kernels.py", *rehearsal, *(["--quick"] if quick else [])]
    yield Step("kernels' bandwidth", "bandwidth", kernels, 120, figures="slowest: .*")
    more = ["--no-compile", "--rounds", "3"] if quick else []
    for compute in ("float32",) if quick else ("float32", "tf32", "bf16"):
        for net in ("lenet",) if rehearse else NETS:
            bench = [*PYTHON, "jobs/bench/gpu.py", "--nets", net, "--compute", compute, *rehearsal, *more]
            group, limit = f"bench-{compute}", 60 if quick else 180
            yield Step(f"{net}, {compute}", group, bench, limit, ("torch",), f"{net} .*", "no --compute.*")


def _chosen(few: bool, pattern: str) -> list[str]:
    return ["-k", pattern] if few else []


def _mpirun(ranks: int) -> list[str]:
    return ["jobs/mpirun.sh", "-n", str(ranks)]


def run(step: Step, log: Path, seconds: float) -> Result:
    """Run a step, for `seconds` at most."""
    if lacking := [module for module in step.needs if find_spec(module) is None]:
        return Result(step.name, "skipped", 0, f"skipped: no {' and no '.join(lacking)} here")
    if step.command[0].endswith("mpirun.sh") and shutil.which("mpirun") is None:
        return Result(step.name, "skipped", 0, "skipped: no mpirun here")
    start = time.monotonic()
    with log.open("w") as stream:
        print("+", *step.command, file=stream, flush=True)
        code = _wait(step.command, stream, seconds)
    return judge(step, code, log.read_text(errors="replace"), round(time.monotonic() - start))


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
        return Result(step.name, "FAILED", seconds, f"stopped after {seconds} s; {said or lines[-1]}")
    if absent := _last(step.missing, lines) if code else "":
        return Result(step.name, "skipped", seconds, f"skipped: {absent}")
    if code == NO_TESTS or (code == 0 and "skipped" in said and "passed" not in said):
        return Result(step.name, "skipped", seconds, f"skipped: {_last('SKIPPED.*', lines) or said or lines[-1]}")
    return Result(step.name, "FAILED" if code else "passed", seconds, said or lines[-1])


def _last(form: str, lines: list[str]) -> str:
    return next((line for line in reversed(lines) if re.match(form, line)), "")


def text_table(results: list[Result]) -> str:
    """Return the table for a terminal."""
    width = max(len(one.step) for one in results)
    lines = [f"{one.step:{width}}  {one.result:8} {one.seconds:5d}  {one.figures}".rstrip() for one in results]
    return "\n".join([f"{'step':{width}}  {'result':8} {'s':>5}  figures", *lines, ""])


def markdown_table(results: list[Result]) -> str:
    """Return the table in Markdown."""
    cells = [(one.step, one.result, str(one.seconds), one.figures.replace("|", "\\|")) for one in results]
    rows = [("step", "result", "seconds", "figures"), ("---",) * 4, *cells]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def keep(out: Path, results: list[Result]) -> None:
    """Write the tables."""
    (out / "table.txt").write_text(text_table(results))
    (out / "table.md").write_text(markdown_table(results))
    (out / "table.json").write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")


def earlier(out: Path) -> dict[str, Result]:
    """Return the lines of an earlier run's table, by step."""
    try:
        return {one["step"]: Result(**one) for one in json.loads((out / "table.json").read_text())}
    except (OSError, ValueError, TypeError):
        return {}


def choose(all_steps: list[Step], wanted: str) -> list[Step]:
    """Return the steps of the wanted groups, all for "". Raises SystemExit for an unknown group."""
    groups = dict.fromkeys(step.group for step in all_steps)
    names = wanted.split(",") if wanted else list(groups)
    if unknown := [name for name in names if name not in groups]:
        raise SystemExit(f"prove_on_gpu.sh: no steps {', '.join(unknown)}; known: {', '.join(groups)}")
    return [step for step in all_steps if step.group in names]


def main() -> int:
    """Run the steps and print the table; return the exit code."""
    out, given = Path(sys.argv[1]), os.environ.get
    quick, parity = bool(given("QUICK")), given("PARITY", "")
    all_steps = [*steps(quick, bool(given("REHEARSE")), bool(parity))]
    chosen = choose(all_steps, given("STEPS", ""))
    if parity:
        os.environ["SCAFFE_CASES"] = str(_as_cases(out, Path(parity)))
    end = time.monotonic() + float(given("SECONDS_IN_ALL") or (480 if quick else 3600))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # installed plugins may warn or slow the tests
    (out / "logs").mkdir(exist_ok=True)
    lines = earlier(out)
    for step in chosen:
        left = min(step.seconds, end - time.monotonic())
        log = out / "logs" / f"{re.sub('[^a-z0-9]+', '_', step.name.lower())}.log"
        result = run(step, log, left) if left > 1 else Result(step.name, "not run", 0, "no time was left")
        lines[step.name] = result
        keep(out, [lines[each.name] for each in all_steps if each.name in lines])
        print(f"{result.result:8} {step.name} ({result.seconds} s)", file=sys.stderr, flush=True)
        if result.result == "FAILED":
            print(*log.read_text(errors="replace").splitlines()[-15:], sep="\n", file=sys.stderr, flush=True)
    print((out / "table.txt").read_text(), end="")
    return int(any(lines[step.name].result in ("FAILED", "not run") for step in chosen))


def _as_cases(out: Path, parity: Path) -> Path:
    """Return a folder with a link `parity` to the cases, as the tests expect it."""
    link = out / "cases" / "parity"
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(parity)
    return link.parent


if __name__ == "__main__":
    sys.exit(main())
