#!/usr/bin/env python3
"""Search for trainings that several ranks, or faults, make end otherwise.

    python jobs/search.py nets --seed 1 --count 40      # random nets on 1 to 8 ranks, against one rank
    python jobs/search.py nets --seed 1 --only 17       # one of them, with its prototxt
    python jobs/search.py faults --seed 1 --count 6     # random trainings, of which processes are killed or stopped

Prints each case that is wrong, hangs, ends its job or is refused, with the command that repeats it and its prototxt;
then the number of cases by result. Exit code 1 if there was one.

Each net trains with a random workflow, algorithm of collectives and number of instances. It is wrong where a parameter,
a statistic, a loss or an output of a test net differs from that of one rank: by more than 3.5e-6 of the largest, and by
more than 10 times what rounding changes of it on one rank. That is the larger difference between the reference engine
and two others: oneDNN, and itself after a rounding of all parameters. Values of which rounding changes more than 1e-4
are not judged; a net `amplifies` it where they are most. The one rank has all rows of a batch. With BatchNorm, whose
rows are those of a rank, it takes them one rank after the other, in as many passes.

A fault kills, stops or ends one or two ranks of a random training on 2 to 4 ranks. Each is hit at the N-th call of a
Python function after the begin of an iteration, or of the set-up. The job must go on, or end and be resumed, with the
weights of an undisturbed run, as jobs/faults.py says.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import search_faults  # noqa: E402
from fault_moments import CALL  # noqa: E402
from faults import Counts  # noqa: E402
from search_draw import draw  # noqa: E402
from search_nets import Result, run_nets  # noqa: E402

SHOWN = 5  # cases with the largest differences


def arguments() -> argparse.Namespace:
    """Return the command line's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["nets", "faults"], help="what to draw")
    parser.add_argument("--seed", type=int, default=1, help="of all cases")
    parser.add_argument("--count", type=int, default=40, help="number of cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, action="append", help="run this case")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of a case, of a machine of its own")
    parser.add_argument("--keep", metavar="FOLDER", help="make this folder, and keep the files of failed cases in it")
    return parser.parse_args()


def numbers(a: argparse.Namespace) -> list[int]:
    """Return the numbers of the cases of the command line."""
    return a.only or list(range(a.first, a.first + a.count))


def nets(a: argparse.Namespace, folder: Path) -> int:
    """Run nets, and print how they ended; return the number of those that did not end well."""
    begin, found = time.monotonic(), []
    for result in run_nets(a.seed, numbers(a), folder, a.longest):
        found.append(result)
        if not result.is_good or a.only:
            show(a.seed, result)
    for name, count in sorted(Counter(result.result for result in found).items()):
        print(f"{count}\t{name}")
    for one in sorted(found, key=lambda one: one.apart)[-SHOWN:]:
        print(f"case {one.case}: apart {one.apart:.2g} at {one.what}, rounding {one.rounding:.2g}: {one.result}")
    print(f"{len(found)}\tnets of seed {a.seed} in {time.monotonic() - begin:.0f} s")
    return len([result for result in found if not result.is_good])


def show(seed: int, result: Result) -> None:
    """Print a case: how it ended, the command that repeats it, and its training."""
    case = draw(seed, result.case)
    said = f"apart {result.apart:.2g}, rounding {result.rounding:.2g}: {result.what}"
    print(f"case {result.case} {result.result}: {said}")
    print(f"    to repeat: python jobs/search.py nets --seed {seed} --only {result.case}")
    print(f"# {case.several}\n{case.several.solver}\n", flush=True)


def faults(a: argparse.Namespace, folder: Path) -> int:
    """Run faults, and print how they ended; return the number of those that did not end well."""
    begin, counts = time.monotonic(), Counts()
    drawn = [search_faults.draw(a.seed, number, is_tolerant()) for number in numbers(a)]
    for fault, outcome, wrong in search_faults.run_faults(drawn, folder, a.longest):
        counts.add(fault.cell, outcome)
        if wrong or a.only:
            print(f"case {fault.number} {outcome}: {fault.cell}  {wrong}")
            print(f"    to repeat: python jobs/search.py faults --seed {a.seed} --only {fault.number} --keep FOLDER")
            print(f"# {' '.join(fault.training.flags)}\n{fault.training.solver}\n{fault.training.net}\n", flush=True)
    print(*[line for line in counts.lines() if CALL not in line], sep="\n")
    print(f"faults of seed {a.seed} in {time.monotonic() - begin:.0f} s")
    return counts.outcomes[search_faults.FAILED]


def is_tolerant() -> bool:
    """Return whether mpirun is Open MPI's, whose ranks can go on without a lost one."""
    found = subprocess.run([HERE / "mpirun.sh", "--version"], capture_output=True, text=True)
    return "Open MPI" in found.stdout


def main() -> int:
    """Run the cases of the command line; return the exit code."""
    a = arguments()
    search = {"nets": nets, "faults": faults}[a.what]
    if a.keep:
        Path(a.keep).mkdir(parents=True)
        return bool(search(a, Path(a.keep)))
    with tempfile.TemporaryDirectory(prefix="search.") as folder:
        return bool(search(a, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
