"""A training some of whose ranks are killed, or raise an error, at given moments.

    python dying.py "2 backward 5; 1 StateTransfer.share 1 raise" train --solver solver.prototxt --on-rank-loss shrink

A moment is a rank as the launcher numbers them, * for all; then an operation and its iteration, or a function and the
number of the call, 0 for each, or `unsent` or `half-sent` and the iteration of a mirror. Then what happens: kill,
raise, stop, hup (requests a snapshot), kill2 (kills rank 2), await (goes on once MPI reports another rank's loss),
follow (is killed then), alarm (a loss is reported, but there is none), decay (a callback makes weights smaller), cores
(--instances auto has four cores in two domains to try), or at World.take_gpu gpu (from the start the rank computes on a
stand-in for a GPU) or gpus (and of these each two are a node, as far as collectives know).

    python dying.py "" asked

trains for each line of its standard input, a list in JSON of a folder, stages and flags; answers when it is done. By
the stages "4,0,5 3,5,9" 4 ranks train to iteration 5, and 3 from there to 9, by the file solver.prototxt with
max_iter: END. An empty line ends it: mpirun passes no end of a file on.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from functools import wraps
from pathlib import Path
from typing import Any

from collectives import Group, RankLostError
from scaffe import cli
from scaffe.monitor.record import BACKWARD, FORWARD, LOSS, SNAPSHOT, TEST, UPDATE, RankRecord
from scaffe.parallel import mirror, world
from scaffe.parallel.instances import places
from scaffe.parallel.instances.topology import Domain, Topology
from scaffe.parallel.mirror import Mirror
from scaffe.parallel.spares import Spares
from scaffe.parallel.world import World, launcher_rank
from scaffe.training import auto_instances, communicator, display, snapshots
from scaffe.training.checkpoints import Checkpoints
from scaffe.training.ending import Ending
from scaffe.training.losses import Losses
from scaffe.training.parts import Parts
from scaffe.training.recovery.shrink import Shrink
from scaffe.training.snapshot_writer import SnapshotWriter
from scaffe.training.solver import Solver
from scaffe.training.state_transfer import StateTransfer

OPERATIONS = {
    "forward": FORWARD, "backward": BACKWARD, "loss": LOSS, "update": UPDATE, "test": TEST, "snapshot": SNAPSHOT,
}  # fmt: skip
OF_A_SOLVER = Checkpoints, Ending, Losses, Parts, Shrink, SnapshotWriter, Solver, StateTransfer
OWNERS = {one.__name__: one for one in (*OF_A_SOLVER, Spares, World)}
SENT = {"unsent": 0.0, "half-sent": 0.5}  # shares of a mirror
SIGNALS = {"kill": signal.SIGKILL, "follow": signal.SIGKILL, "stop": signal.SIGSTOP, "hup": signal.SIGHUP}
OWNERS |= {"display": display, "weights": snapshots.weights}


def hit(how: str, owner: Any) -> None:
    """Do to this process, or to rank 2, what a moment says."""
    if how == "decay":
        return owner.add_callback(lambda: decay(owner), lambda: None)
    if how == "cores":
        return pretend_cores()
    if how == "raise":
        raise ZeroDivisionError("boom")
    if how == "alarm":
        raise RankLostError("an alarm")
    if how == "kill2":
        return os.kill(owner.world.pids[2], signal.SIGKILL)
    if how in ("await", "follow"):
        await_loss()
    if how != "await":
        os.kill(os.getpid(), SIGNALS[how])


def await_loss() -> None:
    """Return once MPI knows, in this process, that another rank is lost."""
    from mpi4py import MPI

    while not world.open_world().misses_any():
        MPI.COMM_SELF.Iprobe()  # MPI progresses within its calls alone
        time.sleep(0.01)


def decay(solver: Solver) -> None:
    """Make all weights smaller."""
    for blobs in solver.net.params.values():
        blobs[0].data[...] *= 0.75


def pretend_cores() -> None:
    """Let --instances auto try 1, 2 and 4 instances, on whatever cores there are."""
    found = Topology((Domain(0, (0, 1)), Domain(1, (2, 3))))
    auto_instances.own_topology = lambda world: found
    places.count = lambda n, *given: {"1": 1, "numa": 2, "core": 4}.get(n) or int(n)


def pretend_gpu() -> None:
    """Compute on a stand-in for a GPU; the collectives' work on it is late and out of step."""
    sys.path.append(str(Path(__file__).with_name("stand_ins")))
    from strict_arrays import StrictDevice, StrictGpu

    take_gpu = World.take_gpu
    World.take_gpu = lambda self, gpu: take_gpu(self, StrictGpu(StrictDevice(seed=self.rank)))


def pretend_nodes() -> None:
    """Compute on stand-ins for GPUs, two of them a node, whose arrays travel as where ranks may be lost."""
    pretend_gpu()
    made = communicator.Communicator

    def of_nodes(comm: Any, group: Any = None, **given: Any) -> Any:
        return made(comm, group=Group.uniform(comm.size, 2), **given | {"through_host": True})

    communicator.Communicator = of_nodes  # type: ignore[misc,assignment]


PRETENDED = {"gpu": pretend_gpu, "gpus": pretend_nodes}


def set_trap(what: str, count: int, how: str) -> None:
    """Hit this rank in an operation of iteration `count`, or in the call of a function of that number."""
    owner, _, name = what.rpartition(".")
    if how in PRETENDED:
        return PRETENDED[how]()
    if what in SENT:
        return trap_mirror(SENT[what], count, how)
    if not owner:
        return trap_operation(OPERATIONS[what], count, how)
    function, calls = getattr(OWNERS[owner], name), [0]

    @wraps(function)
    def trapped(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if count in (0, calls[0]):  # 0: each
            hit(how, given[0] if given else None)
        return function(*given, **named)

    setattr(OWNERS[owner], name, trapped)


def trap_operation(operation: int, iteration: int, how: str) -> None:
    """Hit this rank in an operation of an iteration, in the second layer at the latest."""
    at, were = RankRecord.at, []

    def trapped(self: RankRecord, what: int, layer: int = -1) -> None:
        at(self, what, layer)
        if self._iteration == iteration and what == operation and layer <= 1 and not were:
            were.append(iteration)
            hit(how, self)

    RankRecord.at = trapped  # type: ignore[method-assign]


def trap_mirror(share: float, iteration: int, how: str) -> None:
    """Hit this rank, the root, when it has sent that share of the mirror of an iteration."""
    feed, pieces, fed = Mirror.feed, mirror.pieces, [-1]

    def followed(self: Mirror, now: int, *about: Any) -> None:
        fed.append(now)
        feed(self, now, *about)

    def trapped(buffer: Any) -> Any:
        whole = pieces(buffer)
        for k, piece in enumerate(whole):
            if fed[-1] == iteration and k == int(share * len(whole)):
                hit(how, None)
            yield piece

    Mirror.feed, mirror.pieces = followed, trapped  # type: ignore[method-assign,assignment]


def main(moments: str, *command: str) -> int:
    """Set this rank's traps, and run scaffe."""
    gc.freeze()  # as scaffe itself does
    print(f"process {os.getpid()}", file=sys.stderr)
    mirror.PIECE = 1 << 9  # so that a small net's has several
    for moment in filter(None, moments.split(";")):
        rank, what, count, *how = moment.split()
        if rank in ("*", str(launcher_rank())):
            set_trap(what, int(count), *(how or ["kill"]))
    return train_as_asked() if command[0] == "asked" else cli.main(command)


def train_as_asked() -> int:
    """Train in stages for each line that rank 0 reads, in the folder that it names; tell when it is done."""
    from mpi4py import MPI

    everyone = MPI.COMM_WORLD
    while asked := told(everyone, sys.stdin.readline().strip() if everyone.rank == 0 else ""):
        folder, *given = json.loads(asked)
        os.chdir(folder)
        if code := train_in_stages(*given):
            return code
        if everyone.rank == 0:
            print("done", flush=True)
    return 0


def told(comm: Any, line: str) -> str:
    """Return what rank 0 has read, once it has. Collective."""
    await_all(comm)
    return comm.bcast(line)


def await_all(comm: Any) -> None:
    """Return once all ranks have come here, and leave the cores to those that train."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.03)


def train_in_stages(stages: str, *flags: str) -> int:
    """Train on the first so many ranks, from the snapshot of an iteration, unless it is 0, to another; in stages."""
    from mpi4py import MPI

    everyone = MPI.COMM_WORLD
    for ranks, begin, end in (map(int, stage.split(",")) for stage in stages.split()):
        comm = everyone.Split(everyone.rank < ranks, everyone.rank)
        if everyone.rank < ranks:
            world._world = world.World(comm)
            text = Path("solver.prototxt").read_text()
            Path(f"{everyone.rank}.prototxt").write_text(text.replace("max_iter: END", f"max_iter: {end}"))
            resume = ("--snapshot", f"snap_iter_{begin}.solverstate") if begin else ()
            if code := cli.main(("train", "--solver", f"{everyone.rank}.prototxt", *resume, *flags)):
                return code
        await_all(everyone)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
