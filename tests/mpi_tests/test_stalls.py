"""A rank that keeps others waiting is named, on its own node and, by datagrams, on another."""

from __future__ import annotations

import os
import re
import socket
import threading

import nets
import pytest
from mpi4py import MPI

from scaffe.compute import Compute
from scaffe.monitor.record import BACKWARD, SUMS, UPDATE, RankRecord
from scaffe.monitor.watching import Watching
from scaffe.net.net import Net
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.run import Run
from scaffe.parallel.watch import heartbeats, policy
from scaffe.parallel.watch.report import LayerNames
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]
COMM = MPI.COMM_WORLD
HOST = socket.gethostname()


class FewLayers(LayerNames):
    def __init__(self, nets):
        self.names, self.reading = [["data", "conv1"]], [[True, False]]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("node", ["all", "each its own"])
def test_a_rank_that_computes_on_is_named_by_the_lowest_that_waits(node, others, monkeypatch) -> None:
    monkeypatch.setattr(heartbeats, "LayerNames", FewLayers)
    told = threading.Event()
    lines: list[str] = []

    def warn(text, *given):  # other watches log too
        lines.append(line := text % given)
        if "rank 1 on" in line and "conv1" in line and ("instance 0 in" in line) == (others > 0):
            told.set()

    monkeypatch.setattr(policy.log, "warning", warn)
    world = World(COMM.Dup())
    world.record.begin(7)
    records = [world.record, *(RankRecord() for _ in range(others * world.rank))]  # of other instances
    for record in records[1:]:
        record.begin(7)
        record.rest()
    watch = heartbeats.Heartbeats(world, world.comm if node == "all" else MPI.COMM_SELF, [], 0.5, records=records)
    forge(watch.datagrams)
    if world.rank == 1:
        for record in records[1:]:
            record.at(BACKWARD)
            record.rest()
        if others:
            world.record.rest()
        records[-1].at(BACKWARD, 1)
        COMM.Barrier()
    else:
        world.record.at(UPDATE)
        with world.record.waiting(SUMS):
            if world.rank == 0:
                assert told.wait(900)
            COMM.Barrier()
    watch.close()
    if world.rank == 0:
        assert any("update, waiting for the sums of gradients, iteration 7; missing:" in line for line in lines)
        who = f"instance {others - 1} in " if others else ""
        named = f"rank 1 on {world.host}: last seen in {who}backward pass of layer conv1"
        assert any(named in line for line in lines)
        dropped = "dropped 1 datagram(s) that are not from this job"
        assert sum(line.endswith(dropped) for line in lines) == (node != "all")


def forge(datagrams) -> None:
    """Send each rank that listens what no rank of this job has sent."""
    if datagrams._socket is not None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as foreign:
            foreign.sendto(bytes(96), ("127.0.0.1", datagrams._socket.getsockname()[1]))


@pytest.mark.mpi(min_size=2)
def test_an_instance_that_computes_on_is_named_with_those_that_wait_for_it(tmp_path_factory, monkeypatch) -> None:
    folder = nets.shared_folder(COMM, tmp_path_factory, "instances")
    if COMM.rank == 0:
        os.mkfifo(folder / "go")
    COMM.Barrier()
    go = os.open(folder / "go", os.O_RDWR)  # by all to the end, so that no rank waits for another to open it
    stuck = "last seen in instance 1 in backward pass of layer ip2; instance 0 in backward pass, waiting for the other "
    backward, lines = Net.backward_layer, []

    def warn(text, *given):
        line = text % given
        if f"rank 1 on {HOST}: {stuck}instances; iteration 1, " in line and not lines:
            lines.append(line)
            os.write(go, b".")

    def wait(net, i):
        backward(net, i)
        if COMM.rank == 1 and (net.context.rank, net.context.batch_number, net.layers[i].name) == (3, 1, "ip2"):
            os.read(go, 1)

    monkeypatch.setattr(policy.log, "warning", warn)
    monkeypatch.setattr(Net, "backward_layer", wait)
    solver = Solver(
        nets.solver_with(nets.tower(folder / "db"), base_lr=0.1),
        world=World(COMM),
        compute=Compute(engine="reference"),
        run=Run(reduce="chain"),
        instances=Instances(2, oversubscribe=True),
        watching=Watching(stall_seconds=0.5),
    )
    solver.step(3)
    solver.close()
    assert sum(COMM.allgather(len(lines))) >= 1  # of the lowest rank that runs just then, so it may be said twice
    os.close(go)


@pytest.mark.mpi(min_size=2)
def test_of_two_solvers_the_one_at_work_is_watched(tmp_path_factory, monkeypatch) -> None:
    """Both have the record of this process, which is in the memory of one watch alone."""
    folder = nets.shared_folder(COMM, tmp_path_factory, "two")
    if COMM.rank == 0:
        os.mkfifo(folder / "go")
        nets.write_images(folder / "images")
    COMM.Barrier()
    go = os.open(folder / "go", os.O_RDWR)  # by all to the end, so that no rank waits for another to open it
    backward, world, lines, held, layer = Net.backward_layer, World(COMM), [], {"layer": ""}, ""

    def warn(text, *given):
        named = f"rank 1 on {HOST}: last seen in backward pass of layer {layer}"
        lines.append(line := text % given)
        if named in line and sum(named in one for one in lines) == 3:
            os.write(go, b".")  # the other watch has had its time to say something, too

    def wait(net, i):
        backward(net, i)
        if COMM.rank == 1 and net.layers[i].name == held["layer"]:
            held["layer"] = ""
            os.read(go, 1)

    monkeypatch.setattr(policy.log, "warning", warn)
    monkeypatch.setattr(Net, "backward_layer", wait)
    given = {"world": world, "compute": Compute(engine="reference"), "run": Run(reduce="chain")}
    given["watching"] = Watching(stall_seconds=0.2)
    first = Solver(nets.solver_with(nets.tower(folder / "db"), base_lr=0.1), **given)
    second = Solver(nets.solver_with(nets.softmax_regression(folder / "images"), base_lr=0.1), **given)
    for solver, layer in ((first, "ip2"), (second, "ip"), (first, "ip1")):
        held["layer"] = layer
        lines.clear()
        solver.step(2)
        places = [place for line in lines for place in re.findall(r"pass of layer (\w+)", line)]
        assert {*places} <= {one.name for one in solver.net.layers}
        assert sum(COMM.allgather(places.count(layer))) >= 3
    first.close()
    held["layer"] = layer = "ip"
    lines.clear()
    second.step(1)
    assert any(COMM.allgather(any("backward pass of layer ip" in line for line in lines)))
    second.close()
    os.close(go)
