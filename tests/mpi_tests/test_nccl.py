"""NCCL as one algorithm more, over a stand-in that waits for the other ranks on its stream, as NCCL's kernels do."""

import logging
import random

import numpy as np
import pytest
from device_arrays import compare, compare_blocks, rows, uneven
from fake_device import FakeDevice
from fake_nccl import FakeGroup, NcclError
from mpi4py import MPI

from collectives import AlgorithmError, CollectiveError, Communicator, Group, Staged
from collectives.execution.device import aware, nccl
from collectives.execution.device.hierarchy import HierarchyPlan
from collectives.execution.device.nccl import NcclPlan
from collectives.execution.device.plans import PeerPlan
from collectives.execution.operations import TYPES

pytestmark = pytest.mark.mpi(min_size=2)
COMM = MPI.COMM_WORLD
FLOAT = np.dtype("f4")
BLOCKS = ("reduce_scatter", "allgather")


def communicator(monkeypatch, shares=False, direct=False, **how):
    """Return a communicator over fake devices, of which all ranks share one or none do, and the device."""
    monkeypatch.setenv(aware.VARIABLE, str(int(direct)))
    monkeypatch.delenv(nccl.SHARING, raising=False)
    device = FakeDevice(seed=COMM.rank)
    device.identity = "the only one" if shares else f"{COMM.rank}"
    return Communicator(COMM, device=device, **how), device


@pytest.fixture
def on_device(monkeypatch):
    made, device = communicator(monkeypatch)
    yield made, device
    made.free()


def check(comm, device, what, length=40, dtype=FLOAT, op="sum", algorithm="nccl"):
    """Run one collective for every root, in place and not, and compare."""
    everyone = rows(COMM.size, length, dtype)
    send, recv = device.empty((length,), dtype), device.empty((length,), dtype)
    for root in range(comm.size) if what != "allreduce" else [0]:
        send.set(everyone[comm.rank])
        recv.set(np.zeros(length))
        compare(comm, what, send, recv, everyone, op, root, algorithm=algorithm, chunk_bytes=64)


@pytest.mark.parametrize("what", ["reduce", "bcast", "allreduce"])
def test_it_gives_numpys_numbers(on_device, what):
    for length in (0, 1, 40):
        check(*on_device, what, length)
    assert isinstance(on_device[0].plan(what, on_device[1].zeros((3,), FLOAT), algorithm="nccl"), NcclPlan)


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_every_operation_in_every_type(on_device, op):
    for dtype in TYPES:
        if op != "mean" or dtype.kind != "i":
            check(*on_device, "allreduce", 10, dtype, op)


def test_a_broadcast_takes_any_bytes(on_device):
    comm, device = on_device
    array = device.zeros((7,), np.dtype("u2"))
    array.set(np.arange(7) + 300 * comm.rank)
    comm.bcast(array, algorithm="nccl")
    assert array.get().tolist() == [*range(7)]


def test_all_launch_in_the_order_of_rank_0_whoever_comes_first(on_device):
    comm, device = on_device
    chance = random.Random(COMM.rank)
    sums = [device.zeros((20 + k,), FLOAT) for k in range(6)]
    values = [device.zeros((30 + k,), FLOAT) for k in range(6)]
    reduces = Staged(comm, "allreduce", sums, algorithm="nccl")
    broadcasts = Staged(comm, "bcast", values, algorithm="nccl")
    for turn in range(3):
        for array in (*sums, *values):
            array.set(np.full(array.size, turn + comm.rank))
        for staged in (reduces, broadcasts):
            staged.start(ready=True)
        while not (reduces.done() and broadcasts.done()):
            chance.choice((reduces, broadcasts)).progress()
        for staged in (reduces, broadcasts):
            staged.follow()
        for array in sums:
            np.testing.assert_array_equal(array.get(), sum(turn + rank for rank in range(comm.size)))
        for array in values:
            np.testing.assert_array_equal(array.get(), turn)
    for staged in (reduces, broadcasts):
        staged.free()


def test_a_stage_is_done_before_the_device_has_come_to_it(on_device):
    comm, device = on_device
    array, never = device.zeros((9,), FLOAT), device.event()
    never.recorded = 1
    device.current().wait_event(never)
    array.set(np.ones(9))
    staged = Staged(comm, "allreduce", [array], algorithm="nccl")
    staged.start(ready=True)
    while not staged.done():
        staged.progress()
    never.passed = 1
    staged.follow()
    np.testing.assert_array_equal(array.get(), comm.size)
    staged.free()


def test_ranks_that_share_a_gpu_map_each_others_memory_instead_and_are_told_so_once(monkeypatch, caplog):
    comm, device = communicator(monkeypatch, shares=True)
    with caplog.at_level(logging.INFO, "collectives.execution.device"):
        check(comm, device, "reduce", 40)
        check(comm, device, "reduce", 41)
    assert caplog.messages == [
        "reduce of device arrays by slices instead of nccl: NCCL takes one rank a GPU, and ranks 0 and 1 share one"
    ]
    comm.free()


def test_ranks_that_share_a_gpu_have_nccl_where_it_is_told_to_let_them(monkeypatch):
    comm, device = communicator(monkeypatch, shares=True)
    monkeypatch.setenv(nccl.SHARING, "1")
    check(comm, device, "allreduce")
    assert isinstance(comm.plan("allreduce", device.zeros((3,), FLOAT), algorithm="nccl"), NcclPlan)
    comm.free()


def test_a_rank_without_nccl_has_all_take_another_way(monkeypatch, caplog):
    comm, device = communicator(monkeypatch, group=Group.uniform(COMM.size))
    device.has_nccl = comm.rank != 1
    with caplog.at_level(logging.INFO, "collectives.execution.device"):
        check(comm, device, "allreduce")
    assert caplog.messages == ["allreduce of device arrays by ring instead of nccl: NCCL can't be loaded"]
    comm.free()


def test_host_arrays_are_an_error_on_every_rank(on_device):
    with pytest.raises(AlgorithmError, match="'nccl' is for arrays on GPUs, these are in host memory"):
        on_device[0].allreduce(np.zeros(3, np.float32), algorithm="nccl")


def test_what_nccl_refuses_is_told_in_one_line(on_device, monkeypatch):
    def refuse(*given):
        raise NcclError("NCCL_ERROR_INTERNAL_ERROR: internal error")

    monkeypatch.setattr(FakeGroup, "allReduce", refuse)
    with pytest.raises(CollectiveError, match="NCCL's allreduce of 12 bytes failed: NCCL_ERROR_INTERNAL_ERROR"):
        on_device[0].allreduce(on_device[1].zeros((3,), FLOAT), algorithm="nccl")


@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_blocks_of_any_length_go_in_a_group(on_device, op):
    comm, device = on_device
    for what in ("reduce_scatter", "allgather"):
        everyone = rows(comm.size, 40, FLOAT)
        compare_blocks(comm, device, what, everyone, op, uneven(40, comm.size), algorithm="nccl")
    assert device.grouped == 0


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("shares", [False, True], ids=["nccl in the node", "mapped memory in the node"])
@pytest.mark.parametrize("way", ["staged", "direct"])
@pytest.mark.parametrize(
    ("what", "algorithm"),
    [
        *((what, f"leaders-{name}") for what in ("reduce", "bcast") for name in ("chain", "mpi")),
        *((what, f"leaders-{name}") for what in ("allreduce", *BLOCKS) for name in ("ring", "mpi")),
    ],
)
def test_each_rank_carries_its_part_between_the_nodes(monkeypatch, shares, way, algorithm, what):
    comm, device = communicator(monkeypatch, shares, way == "direct", group=Group.uniform(COMM.size, 2))
    for length in (1, 40, 700):
        for op in ("sum", "mean") if what not in ("bcast", "allgather") else [""]:
            if what in BLOCKS:
                everyone = rows(COMM.size, length, FLOAT)
                counts = uneven(length, comm.size)
                compare_blocks(comm, device, what, everyone, op, counts, algorithm=algorithm, chunk_bytes=64)
            else:
                check(comm, device, what, length, op=op or "sum", algorithm=algorithm)
    plan = comm.plan(what, device.zeros((3,), FLOAT), algorithm=algorithm)
    assert isinstance(plan, HierarchyPlan)
    inside = [part for part in plan.parts if part is not plan.between]
    assert all(isinstance(part, PeerPlan if shares else NcclPlan) for part in inside)
    comm.free()


def test_they_are_given_back(monkeypatch):
    ended, orders, destroy, free = [], [], FakeGroup.destroy, nccl.LaunchOrder.free
    monkeypatch.setattr(FakeGroup, "destroy", lambda self: ended.append(destroy(self)))
    monkeypatch.setattr(nccl.LaunchOrder, "free", lambda self: orders.append(free(self)))
    comm, device = communicator(monkeypatch)
    other = comm.dup()
    for each in (comm, other):
        each.allreduce(device.zeros((3,), FLOAT), algorithm="nccl")
    other.free()
    assert not ended
    comm.free()
    assert len(ended) == len(orders) == 1
