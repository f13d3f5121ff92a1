"""The steps of prove_on_gpu.sh: programs with time limits, in the order of their value."""

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
CONVOLUTIONS = f"{DEVICE_TESTS}/test_convolution_cuda.py"
TIMED = "kernels_of_each_pass"  # the test of these that times cuDNN's plans
CUDA_TESTS = "tests/scaffe_tests/engines/cuda"
WORKERS = len(os.sched_getaffinity(0)) // 4  # of a step with many tests; a GPU's machine has cores for them
SPREAD = ["-p", "xdist", "-n", str(WORKERS)] if WORKERS > 1 and find_spec("xdist") else []
SUMMARY = r"\d+ (?:passed|failed|skipped|error).* in .*"
LARGE = "alexnet", "resnet50", "googlenet", "vgg16"
SMALL = "cifar10_quick", "lenet"
MPI_NEEDS = "mpi4py", "pytest_mpi"
DIGITS = "lmdb", "sklearn", "mpi4py"


@dataclass
class Step:
    """A program to run: `tags` select it, `seconds` is its time limit, `needs` are the modules that it requires."""

    name: str
    tags: str  # the part of the proof: a, b or c; what is run; of a benchmark the net, the numbers, and PyTorch's forms
    command: list[str]
    seconds: int
    needs: tuple[str, ...] = ()
    figures: str = SUMMARY  # the last line of the output that matches goes into the table
    missing: str = "(?!)"  # matches a line that says that there is nothing to measure
    heads: str = ""  # the names of its figures
    alone: bool = False  # it times something, be it cuDNN's plans: no other step runs beside it


def steps(quick: bool, rehearse: bool, parity: bool) -> Iterator[Step]:
    """Yield all steps."""
    yield from _first(quick, rehearse)
    yield from _second(quick, rehearse, parity)
    yield from _third(quick, rehearse)


def _first(quick: bool, rehearse: bool) -> Iterator[Step]:
    """Yield part a: the machine, the kernels' code, cuDNN and cuBLAS, ranks, and four nets in bf16 against PyTorch."""
    yield Step("machine", "a machine", [*PYTHON, "-m", "scaffe", "device-query"], 60, figures="GPUs?( 0)?: .*")
    files = [f"{CUDA_TESTS}/test_{name}.py" for name in ("cuda_kernels", "real_signatures")]
    files.append("tests/collectives_tests/execution/device/test_kernels.py")
    compiled = [*PYTEST, *SPREAD, *files, *_chosen(quick, "not sm_75 and not sm_80")]
    yield Step("kernels compile", "a kernels", compiled, 180)
    files = [CONVOLUTIONS, *(f"{CUDA_TESTS}/test_cuda_{name}.py" for name in ("layouts", "plans"))]
    yield Step("products", "a products", [*PYTEST, *SPREAD, *files, "-k", f"not {TIMED}"], 300)
    # In itself it is spread: these tests run all plans that they time, and keep none.
    yield Step("convolutions", "a products", [*PYTEST, *SPREAD, CONVOLUTIONS, "-k", TIMED], 200, alone=True)
    for ranks in (1, 2):
        yield _ranks("a", ranks, rehearse)
    for net in _nets(LARGE, rehearse):
        yield _bench("a", net, "bf16", "eager,graphs", quick, rehearse)


def _second(quick: bool, rehearse: bool, parity: bool) -> Iterator[Step]:
    """Yield part b: bandwidths, reduces, kernels' names, tf32, and the layers, solvers and batches by themselves."""
    few = "Pooling or LRN" if rehearse else "auto"
    layers = [*PYTEST, *SPREAD, f"{CUDA_TESTS}/test_layers_on_devices.py", *_chosen(quick, few)]
    yield Step("layers against numpy", "b layers", layers, 300)
    last = [*PYTEST, *SPREAD, *(f"{CUDA_TESTS}/test_{name}.py" for name in ("typed_blobs", "cuda_parts"))]
    yield Step("channels last, parts", "b layers", last, 200)
    solvers = [*PYTEST, f"{CUDA_TESTS}/test_device_arrays.py", "-k", "kernel or dropout"]
    yield Step("solvers against numpy", "b solvers", solvers, 200)
    batches = [f"{CUDA_TESTS}/test_{name}.py" for name in ("image_transform", "data_on_devices")]
    batches.append("tests/scaffe_tests/devices/test_ahead.py")
    yield Step("batches, transforms", "b batches", [*PYTEST, *batches], 200)
    if parity:
        cases = "(strict or cuda) and not onednn" if not (rehearse and quick) else "cuda and (lrn or pool)"
        parity_tests = [*PYTEST, *SPREAD, "tests/scaffe_tests/layers/test_parity.py", "-k", cases]
        yield Step("layers against Caffe", "b parity", parity_tests, 300)
    kernels = [*PYTHON, "jobs/bench/kernels.py", *_rehearsal(rehearse), *(["--quick"] if quick else [])]
    yield Step("kernels' bandwidth", "b bandwidth", kernels, 180, figures="slowest: .*", alone=True)
    for ranks in (2,) if quick else (2, 4):
        yield _reduce(ranks, rehearse)
    for net in _nets(LARGE, rehearse):
        profile = [*PYTHON, "jobs/bench/gpu_kernels.py", "--nets", net, *_rehearsal(rehearse)]
        yield Step(f"profile {net}", f"b profile {net}", profile, 90, ("torch",), f"{net}, .*: .*", alone=True)
    for net in _nets(LARGE, rehearse):
        yield _bench("b", net, "tf32", "eager,graphs", quick, rehearse)
    if not rehearse and not quick:
        yield _ranks("b", 4, rehearse)


def _third(quick: bool, rehearse: bool) -> Iterator[Step]:
    """Yield part c: PyTorch's compiled forms, loss curves, LeNet, a rank that is killed, and what else is left."""
    device = "cpu" if rehearse else "cuda"
    for net in _nets(LARGE, rehearse):
        yield _bench("c", net, "bf16", "compiled_graphs", quick, rehearse)
    curves = [*PYTHON, "jobs/bench/curves.py", "--device", device, *(["--iterations", "20"] if rehearse else [])]
    yield Step("loss curves", "c curves", curves, 120, ("torch",), "losses .*", alone=True)
    lenet = [*PYTHON, "jobs/prove_lenet.py", "--device", device, "--ranks", "1,2" if quick else "1,2,4"]
    lenet += ["--iterations", "100"] if quick else []
    yield Step("LeNet on digits", "c lenet", lenet, 240, DIGITS, "accuracy .*", alone=True)
    loss = [*PYTHON, "jobs/prove_loss.py", "--device", device]
    yield Step("a rank of 2 is killed", "c loss", loss, 120, DIGITS, "went on .*", "no ULFM.*", alone=True)
    for form in ("compiled", "autotuned"):
        for net in _nets(LARGE, rehearse):
            yield _bench("c", net, "bf16", form, quick, rehearse)
    for net in (*LARGE, *SMALL) if not rehearse else ():
        for numbers in ("float32", "tf32", "bf16") if net in SMALL else ("float32",):
            yield _bench("c", net, numbers, "eager,graphs", quick, rehearse)


def _ranks(part: str, ranks: int, rehearse: bool) -> Step:
    tests = [*RANKS, "tests/mpi_tests/test_training_on_devices.py" if rehearse else DEVICE_TESTS]
    name, command = f"training, collectives: {ranks}", [*_mpirun(ranks), *tests]
    return Step(name, f"{part} ranks", command, 150, MPI_NEEDS, alone=True)


def _bench(part: str, net: str, numbers: str, forms: str, quick: bool, rehearse: bool) -> Step:
    """Return the step of a net against some of PyTorch's forms. A ratio is a figure: none fails for being slow."""
    bench = [*PYTHON, "jobs/bench/gpu.py", "--nets", net, "--compute", numbers, "--forms", forms]
    bench += [*_rehearsal(rehearse), *(["--rounds", "3"] if quick else [])]
    compiles = "eager" not in forms
    bench += [] if compiles else ["--layers", "40"]
    name = f"{net}, {numbers}" + (f", {forms}" if compiles else "")
    tags = " ".join([part, "bench", net, numbers, *forms.split(",")])
    seconds, missing = 200 if compiles else 120, "no --compute.*|.*: none of .* can be measured"
    return Step(name, tags, bench, seconds, ("torch",), f"{net} .*", missing, alone=True)


def _reduce(ranks: int, rehearse: bool) -> Step:
    mebibytes = 1 if rehearse else 64
    bench = [*_mpirun(ranks), *PYTHON, "-m", "collectives.bench", "reduce", "-c", "-i", "20", "-x", "5"]
    bench += ["-m", f"{mebibytes << 20}:{mebibytes << 20}", "--algorithm", "slices,auto,mpi"]
    bench += [] if rehearse else ["-d", "cuda"]
    heads = "bytes, slices us, checked, auto us, mpi us, slices/mpi, auto/mpi:"
    missing = "collectives.bench: .*not yet.*"
    name = f"reduce of {mebibytes} MiB: {ranks}"
    return Step(name, "b reduce", bench, 90, ("mpi4py",), r"\d+\s.*", missing, heads, alone=True)


def _nets(nets: tuple[str, ...], rehearse: bool) -> tuple[str, ...]:
    return ("lenet",) if rehearse else nets


def _rehearsal(rehearse: bool) -> list[str]:
    return ["--rehearse"] if rehearse else []


def _chosen(few: bool, pattern: str) -> list[str]:
    return ["-k", pattern] if few else []


def _mpirun(ranks: int) -> list[str]:
    return ["jobs/mpirun.sh", "-n", str(ranks)]
