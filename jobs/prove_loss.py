"""Kill a rank of two that train LeNet on a GPU, and compare with a run that is resumed there on the other rank.

    python jobs/prove_loss.py [--device cuda] [--folder DIR]

With --sync reduce-bcast rank 1 is killed, with allreduce rank 0, each in a backward pass. All runs compute with
--deterministic. Prints how the ranks went on; exit code 1 unless the last weights are the same, to the bit.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from prove_lenet import DATA, JOBS, prepare

KILLED, LAST = 10, 20  # the iteration in which a rank is killed, and how many there are
VICTIMS = {"reduce-bcast": 1, "allreduce": 0}
SAME = "--deterministic", "--threads", "1", "--on-rank-loss", "shrink"
DIES = "SCAFFE_PROVE_DIES"  # the rank that is killed
SAID = re.compile(r"Ranks left: 1; they go on at iteration \d+ after (\S+) s")


def die(rank: int) -> None:
    """Kill this process, if it is that rank, in a backward pass of iteration KILLED."""
    from scaffe.monitor.record import BACKWARD, RankRecord
    from scaffe.parallel.world import launcher_rank

    at = RankRecord.at

    def dying(self: RankRecord, what: int, layer: int = -1) -> None:
        at(self, what, layer)
        if what == BACKWARD and self._iteration == KILLED and launcher_rank() == rank:
            os.kill(os.getpid(), signal.SIGKILL)

    RankRecord.at = dying  # type: ignore[method-assign]


def train(folder: Path, ranks: int, *flags: str, dies: int = -1) -> str:
    """Train from this program, so that a rank can die; return the log. Raise SystemExit where it fails."""
    launch = [str(JOBS / "mpirun.sh"), "--ft", "-n", str(ranks), sys.executable, "-m", "mpi4py", __file__]
    command = [*launch, "train", "--solver", "solver.prototxt", *SAME, *flags]
    environment = {**os.environ, DIES: str(dies)}
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    if "this job ends with any of its ranks" in run.stderr:
        print("no ULFM: this MPI ends a job with any of its ranks")
        raise SystemExit(1)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {run.returncode}\n{run.stdout[-1000:]}{run.stderr[-3000:]}")
    return run.stderr


def compare(folder: Path, device: str, sync: str) -> float:
    """Return the seconds of the recovery. Raise SystemExit where the runs' weights differ."""
    flags = "--device", device, "--sync", sync
    said = SAID.search(train(folder, 2, *flags, dies=VICTIMS[sync]))
    if not said:
        raise SystemExit(f"{sync}: the rank that is left does not say that it went on")
    weights = folder / DATA / f"lenet_iter_{LAST}.caffemodel"
    found = weights.read_bytes()
    weights.unlink()
    train(folder, 1, *flags, "--snapshot", str(DATA / f"lenet_iter_{KILLED}.solverstate"))
    if weights.read_bytes() != found:
        raise SystemExit(f"{sync}: the weights of iteration {LAST} are not those of a run resumed at {KILLED}")
    return float(said[1])


def main(argv: Sequence[str] | None = None) -> int:
    """Train and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--folder", type=Path, help="an empty folder to run in (default: a temporary one)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        prepare(folder, LAST)
        solver = folder / "solver.prototxt"
        solver.write_text(re.sub(r"snapshot: \d+", f"snapshot: {KILLED}", solver.read_text()))
        seconds = [compare(folder, arguments.device, sync) for sync in VICTIMS]
    print(f"went on after {' and '.join(f'{one:.2g}' for one in seconds)} s ({', '.join(VICTIMS)}), to the same bits")
    return 0


if __name__ == "__main__":
    if DIES in os.environ:
        from scaffe import cli

        die(int(os.environ[DIES]))
        sys.exit(cli.main(sys.argv[1:]))
    sys.exit(main())
