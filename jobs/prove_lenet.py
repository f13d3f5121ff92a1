"""Train LeNet on the handwritten digits with one rank and with several, and compare.

    python jobs/prove_lenet.py [--device cuda] [--ranks 1,2,4] [--iterations 400] [--folder DIR]

Ranks share GPUs where there are fewer GPUs than ranks. Each run uses the quickstart's solver. Prints for each run the
accuracy on the held-out digits, and the distance of its parameters from those of the first run: the mean absolute
difference over the mean absolute value. Exit code 1 for a low accuracy or a large distance.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scaffe.parallel.owners import OWNERS
from scaffe.proto.files import read_weights

JOBS = Path(__file__).resolve().parent
SCAFFE = [sys.executable, "-m", "scaffe"]
DATA = Path("build/quickstart")  # of the solver, relative to the folder of the run
# Sums in another order diverge slowly: on a CPU 2 and 4 ranks are 1e-5 apart after 100 iterations, 0.004 after 400.
FAR, ENOUGH = 0.02, {100: 0.9, 400: 0.97}


def start(ranks: int, *arguments: object, folder: Path) -> str:
    """Run scaffe on `ranks` ranks; return its log. Raises SystemExit where it fails."""
    command = [str(JOBS / "mpirun.sh"), "-n", str(ranks), *SCAFFE, *map(str, arguments)]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {run.returncode}\n{run.stdout[-1000:]}{run.stderr[-3000:]}")
    return run.stderr


def prepare(folder: Path, iterations: int) -> None:
    """Put the solver's files and the digits into the folder of the run."""
    (folder / "jobs").symlink_to(JOBS)
    (folder / DATA).mkdir(parents=True)
    solver = (JOBS / "lenet/solver.prototxt").read_text()
    for name in ("max_iter", "snapshot", "test_interval"):
        solver = re.sub(rf"^{name}: .*", f"{name}: {iterations}", solver, flags=re.MULTILINE)
    (folder / "solver.prototxt").write_text(solver)
    start(1, "convert-digits", DATA, folder=folder)


def trained(folder: Path, ranks: int, device: str, owners: str, iterations: int) -> tuple[float, np.ndarray]:
    """Train on `ranks` ranks; return the accuracy and all parameters."""
    how = "--device", device, "--owners", owners
    log = start(ranks, "train", "--solver", "solver.prototxt", *how, folder=folder)
    weights = read_weights(folder / DATA / f"lenet_iter_{iterations}.caffemodel")
    values = [np.array(blob.data, np.float32) for layer in weights.layer for blob in layer.blobs]
    return float(re.findall(r"accuracy = (\S+)", log)[-1]), np.concatenate(values)


def main(argv: Sequence[str] | None = None) -> int:
    """Train and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--ranks", default="1,2,4", help="numbers of ranks, comma separated (default: %(default)s)")
    parser.add_argument("--owners", default="root", choices=OWNERS, help="of train (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=400, choices=sorted(ENOUGH))
    parser.add_argument("--folder", type=Path, help="an empty folder to run in (default: a temporary one)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        prepare(folder, arguments.iterations)
        counts = [int(count) for count in arguments.ranks.split(",")]
        how = arguments.device, arguments.owners, arguments.iterations
        runs = [trained(folder, count, *how) for count in counts]
    alone = runs[0][1]
    apart = [float(np.abs(values - alone).mean() / np.abs(alone).mean()) for _, values in runs[1:]]
    accuracies = [accuracy for accuracy, _ in runs]
    print(f"accuracy {' '.join(f'{one:.4f}' for one in accuracies)} on {arguments.ranks} ranks;", end=" ")
    print(f"parameters {' '.join(f'{one:.2g}' for one in apart) or 'nothing'} apart")
    return int(min(accuracies) < ENOUGH[arguments.iterations] or max(apart, default=0) > FAR)


if __name__ == "__main__":
    sys.exit(main())
