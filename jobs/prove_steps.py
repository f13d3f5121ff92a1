"""The steps of prove_on_gpu.sh: programs with time limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

PYTHON = [sys.executable]
MPI = ["-p", "pytest_mpi"] if find_spec("pytest_mpi") else []
PYTEST = [*PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", *MPI, "-W", "default"]  # other libraries warn
RANKS = [*PYTHON, "-m", "mpi4py", "-m", "pytest", "--with-mpi", "-m", "mpi", *PYTEST[3:]]
DEVICE_TESTS = "tests/device_tests"
CUDA_TESTS = "tests/scaffe_tests/engines/cuda"
WORKERS = len(os.sched_getaffinity(0)) // 4  # of a step with many tests; a GPU's machine has cores for them
SPREAD = ["-p", "xdist", "-n", str(WORKERS)] if WORKERS > 1 and find_spec("xdist") else []
SUMMARY = r"\d+ (?:passed|failed|skipped|error).* in .*"
BENCH_HEADS = "net, numbers, batch, img/s, eager img/s, ratio, compiled img/s, ratio, MiB, its:"
NETS = "alexnet", "resnet50", "googlenet", "vgg16", "cifar10_quick", "lenet"


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
    alone: bool = False  # it measures speed: no other step runs beside it


def steps(quick: bool, rehearse: bool, parity: bool) -> Iterator[Step]:
    """Yield all steps."""
    device = "cpu" if rehearse else "cuda"
    mpi = "mpi4py", "pytest_mpi"
    yield Step("machine", "machine", [*PYTHON, "-m", "scaffe", "device-query"], 60, figures="GPUs?( 0)?: .*")
    files = [f"{CUDA_TESTS}/test_{name}.py" for name in ("cuda_kernels", "real_signatures")]
    files.append("tests/collectives_tests/execution/test_device_kernels.py")
    yield Step("kernels compile", "kernels", [*PYTEST, *files, *_chosen(quick, "not sm_75 and not sm_80")], 180)
    layers, few = (
        [*PYTEST, *SPREAD, f"{CUDA_TESTS}/test_layers_on_devices.py"],
        "Pooling or LRN" if rehearse else "auto",
    )
    yield Step("layers against numpy", "layers", [*layers, *_chosen(quick, few)], 300)
    solvers = [*PYTEST, f"{CUDA_TESTS}/test_device_arrays.py", "-k", "kernel or dropout"]
    yield Step("solvers against numpy", "solvers", solvers, 200)
    products = [f"{CUDA_TESTS}/test_cuda_{name}.py" for name in ("layouts", "plans")]
    convolutions = f"{DEVICE_TESTS}/test_convolution_cuda.py"
    yield Step("convolutions, products", "products", [*PYTEST, *SPREAD, convolutions, *products], 300)
    batches = [f"{CUDA_TESTS}/test_{name}.py" for name in ("image_transform", "data_on_devices")]
    batches.append("tests/scaffe_tests/devices/test_ahead.py")
    yield Step("batches, transforms", "batches", [*PYTEST, *batches], 200)
    if parity:
        cases = "(strict or cuda) and not onednn" if not (rehearse and quick) else "cuda and (lrn or pool)"
        parity_tests = [*PYTEST, *SPREAD, "tests/scaffe_tests/layers/test_parity.py", "-k", cases]
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
    digits = "lmdb", "sklearn", "mpi4py"
    yield Step("LeNet on digits", "lenet", lenet, 240, digits, "accuracy .*")
    loss = [*PYTHON, "jobs/prove_loss.py", "--device", device]
    yield Step("a rank of 2 is killed", "loss", loss, 120, digits, "went on .*", "no ULFM.*")


def _benchmarks(quick: bool, rehearse: bool) -> Iterator[Step]:
    """Yield the benchmarks. What they measure is a figure: none fails for being slow."""
    rehearsal = ["--rehearse"] if rehearse else []
    mebibytes = 1 if rehearse else 64
    for ranks in (2,) if quick else (2, 4):
        bench = [*_mpirun(ranks), *PYTHON, "-m", "collectives.bench", "reduce", "-c", "-i", "20", "-x", "5"]
        bench += ["-m", f"{mebibytes << 20}:{mebibytes << 20}", "--algorithm", "slices,auto,mpi"]
        bench += [] if rehearse else ["-d", "cuda"]
        name = f"reduce of {mebibytes} MiB: {ranks}"
        heads = "bytes, slices us, checked, auto us, mpi us, slices/mpi, auto/mpi:"
        missing = "collectives.bench: .*not yet.*"
        yield Step(name, "reduce", bench, 90, ("mpi4py",), r"\d+\s.*", missing, heads, alone=True)
    kernels = [*PYTHON, "jobs/bench/kernels.py", *rehearsal, *(["--quick"] if quick else [])]
    yield Step("kernels' bandwidth", "bandwidth", kernels, 120, figures="slowest: .*", alone=True)
    more = ["--no-compile", "--rounds", "3"] if quick else []
    for compute in ("float32",) if quick else ("float32", "tf32", "bf16"):
        for net in ("lenet",) if rehearse else NETS:
            bench = [*PYTHON, "jobs/bench/gpu.py", "--nets", net, "--compute", compute, *rehearsal, *more]
            group, limit = f"bench-{compute}", 60 if quick else 120
            heads, missing = BENCH_HEADS, "no --compute.*"
            yield Step(f"{net}, {compute}", group, bench, limit, ("torch",), f"{net} .*", missing, heads, alone=True)


def _chosen(few: bool, pattern: str) -> list[str]:
    return ["-k", pattern] if few else []


def _mpirun(ranks: int) -> list[str]:
    return ["jobs/mpirun.sh", "-n", str(ranks)]
