"""What the loss of a rank costs a run with --on-rank-loss shrink, and what shrink costs while none is lost.

    python jobs/bench/shrink_cost.py --net alexnet --batch 32 --ranks 4 --workflow SC-OBR
    python jobs/bench/shrink_cost.py --net lenet --launch "jobs/lab/netlab.sh run openmpi 1"

Loss: the last rank is killed in a backward pass. Prints the seconds from SIGKILL to the end of the next iteration of
the ranks that are left, the parts of this time on the root, and how many iterations they computed again; and the same
for a job that ends and is started again: from SIGKILL to the end of mpirun, and from a start to the end of the first
iteration.

No loss: two solvers of the same ranks, without shrink and with it, take turns of `--every` iterations. Prints the ratio
of the medians over `--rounds`, and the bound: the time of a copy of parameters and history over that of an iteration.
Short iterations need `--every 10 --rounds 90`: turns of few iterations hide what one leaves for the next to wait for,
and the median of few turns varies by several percent.
The clock `cpu` counts the seconds of the root's threads on the cores: on a busy machine, with one rank, which waits for
no other.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from iteration import random_images, solver_param, zoo

from scaffe.monitor.record import BACKWARD, FORWARD, RankRecord
from scaffe.parallel.drive import DRIVES
from scaffe.parallel.propagate import Propagate
from scaffe.parallel.run import Run
from scaffe.parallel.world import launcher_rank
from scaffe.training import parts as training_parts
from scaffe.training.parts import Parts
from scaffe.training.recovery.shrink import Shrink
from scaffe.training.solver import Solver
from scaffe.training.state_transfer import StateTransfer

MPIRUN = Path(__file__).resolve().parents[1] / "mpirun.sh"
KILLED, ITERATIONS = 4, 8  # the iteration in which a rank is killed, and how many there are
PATIENCE = 600  # seconds of a job
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
RECOVERY = {  # the functions of its parts
    "agreement": (Shrink, "_shrink"),
    "giving up": (Parts, "abandon"),
    "sharing the state": (StateTransfer, "share"),
    "train net": (Parts, "_build_train_nets"),
    "collectives": (training_parts, "open_communicator"),
    "rule, test nets": (Parts, "_build_rest"),
    "workflows": (Parts, "_make_workflows"),
    "taking over": (StateTransfer, "give"),
    "plans": (Parts, "plan"),
    "broadcast": (Propagate, "broadcast"),
    "all": (Shrink, "_recover"),
}


def made(given: argparse.Namespace, shrinks: bool) -> Solver:
    """Return a solver of the net on random images, without snapshots."""
    run = Run(given.workflow, given.sync, drive=given.drive, on_rank_loss="shrink" if shrinks else "stop")
    solver = Solver(solver_param(zoo(given.net, given.batch)), run=run)
    random_images(solver.net, 1)
    return solver


def timed(part: str, owner: Any, name: str, seconds: dict[str, float]) -> None:
    """Make a function add its seconds to those of a part."""
    function: Callable[..., Any] = getattr(owner, name)

    @wraps(function)
    def run(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = function(*given, **named)
        seconds[part] = seconds.get(part, 0) + time.perf_counter() - start
        return result

    setattr(owner, name, run)


def time_recovery() -> dict[str, float]:
    """Return where the seconds of a recovery's parts are found once there was one, and its begin."""
    seconds, found = dict[str, float](), dict[str, float]()
    for part, (owner, name) in RECOVERY.items():
        timed(part, owner, name, seconds)
    owner, name = RECOVERY["all"]
    recover = getattr(owner, name)

    def run(shrink: Shrink) -> None:
        seconds.clear()
        begin = time.time()
        recover(shrink)
        found.update(seconds, begin=begin)

    setattr(owner, name, run)
    return found


def lose(given: argparse.Namespace, folder: Path) -> None:
    """Train on this rank, the last of which is killed; the root notes when each iteration began and ended."""
    at, solver, parts = RankRecord.at, made(given, given.mode == "shrink"), time_recovery()
    is_victim = launcher_rank() == given.ranks - 1
    begun: list[int] = []
    ended: list[float] = []

    def dying(record: RankRecord, operation: int, layer: int = -1) -> None:
        at(record, operation, layer)
        if operation == FORWARD and layer < 0:
            begun.append(solver.iter)
        if is_victim and operation == BACKWARD and solver.iter == KILLED:
            (folder / "killed").write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)

    RankRecord.at = dying  # type: ignore[method-assign]
    for _ in range(ITERATIONS):
        solver.step(1)
        ended.append(time.time())
        if solver.world.is_root:
            (folder / "root").write_text(json.dumps([begun, ended, parts]))
    solver.world.leave(0)


def compare(given: argparse.Namespace, folder: Path) -> None:
    """Take turns of a solver without shrink and one with it; the root notes the seconds of an iteration."""
    solvers = [made(given, shrinks) for shrinks in (False, True)]
    seconds: list[list[float]] = [[], []]
    clock = CLOCKS[given.clock]
    for k in range(-1, given.rounds):  # one to warm up
        for i in (k % 2, 1 - k % 2):
            solvers[i].world.comm.Barrier()
            start = clock()
            solvers[i].step(given.every)
            seconds[i].append((clock() - start) / given.every)
    packed, rule = solvers[1].net.packed, solvers[1].parts.rule
    values = [np.ones(packed.nbytes // 4, np.float32) for _ in range(2)]
    copies = []
    for _ in range(5):
        start = clock()
        np.copyto(*values)
        copies.append((clock() - start) * (1 + len(rule.history)))
    if solvers[0].world.is_root:
        (folder / "turns").write_text(json.dumps([[one[1:] for one in seconds], median(copies)]))
    for solver in solvers:
        solver.close()


def start(given: argparse.Namespace, mode: str, folder: Path) -> tuple[float, float]:
    """Start the ranks in a mode; return the times of the start and the end of the launcher."""
    options = [f"--net={given.net}", f"--batch={given.batch}", f"--ranks={given.ranks}", f"--mode={mode}"]
    options += [f"--workflow={given.workflow}", f"--sync={given.sync}", f"--drive={given.drive}"]
    options += [f"--clock={given.clock}"]
    options += [f"--every={given.every}", f"--rounds={given.rounds}", f"--folder={folder}"]
    launch = shlex.split(given.launch) or [str(MPIRUN), *(["--ft"] if mode != "stop" else []), "-n", str(given.ranks)]
    begin = time.time()
    done = subprocess.run(
        [*launch, sys.executable, "-m", "mpi4py", __file__, *options], capture_output=True, timeout=PATIENCE
    )
    if done.returncode and mode != "stop":
        raise SystemExit(done.stderr.decode())
    return begin, time.time()


def show_loss(given: argparse.Namespace, folder: Path) -> None:
    """Measure a loss with shrink and without it, and print both."""
    start(given, "shrink", folder)
    killed = float((folder / "killed").read_text())
    begun, ended, parts = json.loads((folder / "root").read_text())
    next_end = min(moment for moment in ended if moment > killed)
    again = len(begun) - len({*begun})
    print(f"shrink: {next_end - killed:.2f} s from SIGKILL to the next iteration; {again} iteration(s) computed again")
    begin, all_ = parts.pop("begin"), parts.pop("all")
    others = {"noticed after": begin - killed, **parts, "other parts": all_ - sum(parts.values())}
    others["next iteration"] = next_end - begin - all_
    print("    " + ", ".join(f"{part} {seconds:.2f}" for part, seconds in others.items()))
    begin, end = start(given, "stop", folder)
    killed, (_, ended, _) = float((folder / "killed").read_text()), json.loads((folder / "root").read_text())
    print(f"by hand: {end - killed:.2f} s to the end of the job, {ended[0] - begin:.2f} s from a start to an iteration")


def show_cost(given: argparse.Namespace, folder: Path) -> None:
    """Measure iterations with shrink and without it, and print their ratio and its bound."""
    start(given, "turns", folder)
    seconds, copy = json.loads((folder / "turns").read_text())
    without, with_it = (median(one) for one in seconds)
    paired = median(b / a for a, b in zip(*seconds, strict=True))
    cost = with_it / without - 1
    print(f"no loss: {1e3 * without:.2f} ms an iteration, with shrink {1e3 * with_it:.2f} ms: {cost:+.2%}")
    print(f"    median of the rounds' ratios {paired - 1:+.2%}; a copy takes {1e3 * copy:.2f} ms, {copy / without:.2%}")


def main() -> None:
    """Run a mode on this rank, or start the ranks of each and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", default="lenet", help="a net of scaffe's models")
    parser.add_argument("--batch", type=int, default=64, help="images of an iteration, over all ranks")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--workflow", default=Run().workflow)
    parser.add_argument("--sync", default=Run().sync)
    parser.add_argument("--drive", choices=DRIVES, default="helper", help="not auto, whose trial would be measured too")
    parser.add_argument("--every", type=int, default=5, help="iterations of a turn")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--only", choices=("loss", "cost"), help="measure this alone")
    parser.add_argument("--launch", default="", help="the launcher and its options, for so many ranks")
    parser.add_argument("--mode", choices=("shrink", "stop", "turns"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.mode:
        (compare if given.mode == "turns" else lose)(given, given.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(f"{given.net}, batch {given.batch}, {given.ranks} ranks, {given.workflow}, {given.sync}")
        for name, show in (("loss", show_loss), ("cost", show_cost)):
            if given.only in (None, name):
                show(given, Path(folder))


if __name__ == "__main__":
    main()
