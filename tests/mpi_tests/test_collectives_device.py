"""Collectives on device arrays, over a fake device: what the host does, in what order, and for what it waits.

Each way is run as on a GPU: chunks through pinned memory, device pointers handed to MPI, slices by mapped memory.
"""

import logging

import numpy as np
import pytest
from device_arrays import compare, compare_blocks, rows, uneven
from fake_device import FakeDevice
from mpi4py import MPI

from collectives import ArgumentError, Communicator, DisagreementError, Group, Staged
from collectives.execution import maker
from collectives.execution.device import aware
from collectives.execution.device.nccl import NcclPlan
from collectives.execution.device.plans import PeerPlan
from collectives.execution.device.transports import SLOTS
from collectives.execution.operations import OPERATIONS, TYPES
from collectives.execution.plans import SchedulePlan
from collectives.tuning import Row, Table

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
TREES = ["chain", "binomial", "flat", "kary-2", "two-tree", "cb-2", "cc-2", "ccb-2"]
ALGORITHMS = {"reduce": [*TREES, "cb-2:levels"], "bcast": TREES, "allreduce": [*TREES, "ring", "halving"]}
CASES = [(what, name) for what, names in ALGORITHMS.items() for name in ["auto", "mpi", "slices", *names]]


def communicator(way, **how):
    """Return a communicator over a fake device, and the device."""
    device = FakeDevice(seed=COMM.rank, sharing=how.pop("sharing", True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(aware.VARIABLE, "1" if way == "direct" else "0")
        made = Communicator(COMM, device=device, **how)
        made.allreduce(device.zeros((1,), np.dtype("f4")), algorithm="chain")  # asks the variable
    return made, device


@pytest.fixture(scope="module", params=["staged", "direct"])
def on_device(request):
    made, device = communicator(request.param)
    yield made, device
    made.free()
    assert not device.mapped


def check(comm, device, what, length, dtype, op="sum", **how):
    """Run one collective for every root, in place and not, and compare."""
    everyone = rows(COMM.size, length, dtype)
    send, recv = device.empty((length,), dtype), device.empty((length,), dtype)
    for root in range(comm.size) if what != "allreduce" else [0]:
        send.set(everyone[comm.rank])
        recv.set(np.zeros(length))
        compare(comm, what, send, recv, everyone, op, root, **how)


@pytest.mark.parametrize(("what", "algorithm"), CASES)
def test_every_algorithm_gives_numpys_numbers(on_device, what, algorithm):
    for length in (0, 2, 13, 500):
        check(*on_device, what, length, np.dtype("f4"), algorithm=algorithm, chunk_bytes=100)


@pytest.mark.parametrize("algorithm", ["auto", "mpi", "slices", "nccl", "ring", "halving"])
@pytest.mark.parametrize("what", ["reduce_scatter", "allgather"])
def test_every_algorithm_gives_each_rank_its_block(on_device, what, algorithm):
    comm, device = on_device
    for length in (0, 2, 13, 500):
        everyone = rows(comm.size, length, np.dtype("f4"))
        for op in ("sum", "mean") if what == "reduce_scatter" else [""]:
            given = comm, device, what, everyone, op, uneven(length, comm.size)
            compare_blocks(*given, algorithm=algorithm, chunk_bytes=100)


@pytest.mark.two_ranks
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("algorithm", ["mpi", "slices", "cb-2"])
def test_every_operation_in_every_type(on_device, op, dtype, algorithm):
    if op == "mean" and dtype.kind == "i":
        pytest.skip("no mean of whole numbers")
    check(*on_device, "reduce", 33, dtype, op, algorithm=algorithm, chunk_bytes=16)
    check(*on_device, "allreduce", 33, dtype, op, algorithm=algorithm, chunk_bytes=16)


def test_half_precision_is_added_as_on_the_host_bit_for_bit(on_device):
    comm, device = on_device
    values = np.random.default_rng(comm.rank).standard_normal(500).astype(np.float16)
    for algorithm in ("chain", "halving", "slices"):
        host, ours = values.copy(), device.empty((500,), values.dtype)
        ours.set(values)
        comm.allreduce(host, op="mean", algorithm=algorithm, chunk_bytes=64)
        comm.allreduce(ours, op="mean", algorithm=algorithm, chunk_bytes=64)
        assert ours.get().tobytes() == host.tobytes()


def test_plans_side_by_side_go_on_without_waiting(on_device):
    comm, device = on_device
    arrays = [device.empty((300 + k,), np.dtype("f4")) for k in range(3)]
    for array in arrays:
        array.set(np.full(array.size, comm.rank + 1))
    comms = [comm.dup() for _ in arrays]
    ways = zip(comms, arrays, ("ring", "cb-2", "slices"), strict=True)
    plans = [each.plan("allreduce", array, algorithm=name, chunk_bytes=64) for each, array, name in ways]
    for plan in plans:
        plan.start()
    while not all([plan.advance() for plan in plans]):
        pass
    for plan, array in zip(plans, arrays, strict=True):
        plan.follow()
        np.testing.assert_array_equal(array.get(), comm.size * (comm.size + 1) / 2)
    for each in comms:
        each.free()


@pytest.mark.mpi(min_size=2)
def test_two_plans_of_which_each_rank_sees_another_go_on_first_do_not_wait_for_each_other(on_device):
    comm, device = on_device
    arrays = [device.empty((300,), np.dtype("f4")) for _ in range(2)]
    for array in arrays:
        array.set(np.full(array.size, comm.rank + 1))
    lanes = [comm.dup() for _ in arrays]
    plans = [lane.plan("allreduce", array, algorithm="slices") for lane, array in zip(lanes, arrays, strict=True)]
    for plan in plans:
        plan.mark()
    steps = [plan.steps(wait=False) for plan in plans]
    for marked in [next(each) for each in steps]:
        marked.Wait()
    waiting = [next(each) for each in steps]  # all say where their arrays are
    for k in (0, 1) if comm.rank else (1, 0):  # one hears of all others' before the other does
        waiting[k].Wait()
        waiting[k] = next(steps[k])
    while any(waiting):
        for k, request in enumerate(waiting):
            if request is not None and request.Test():
                waiting[k] = next(steps[k], None)
    for plan, array in zip(plans, arrays, strict=True):
        plan.follow()
        np.testing.assert_array_equal(array.get(), comm.size * (comm.size + 1) / 2)
    for lane in lanes:
        lane.free()


@pytest.mark.mpi(min_size=2)
def test_memory_that_one_rank_cannot_map_is_an_error_on_all(monkeypatch):
    comm, device = communicator("staged")
    array = device.zeros((50,), np.dtype("f4"))
    comm.allreduce(array, algorithm="slices")

    def refuse(handle):
        raise ArgumentError("no more room for mappings")

    if comm.rank == comm.size - 1:
        monkeypatch.setattr(device, "open", refuse)
    plan = comm.plan("allreduce", device.zeros((50,), np.dtype("f4")), algorithm="slices")
    with pytest.raises(ArgumentError, match=f"rank {comm.size - 1}: no more room for mappings"):
        plan.run()
    with pytest.raises(ArgumentError, match=f"rank {comm.size - 1}: no more room for mappings"):
        plan.start()
        plan.finish()
    comm.free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("algorithm", ["cb-2", "mpi", "slices"])
def test_a_stage_waits_for_what_came_before_it_was_ready_and_whoever_follows_reads_its_result(on_device, algorithm):
    comm, device = on_device
    array = device.zeros((300,), np.dtype("f4"))
    staged = Staged(comm, "allreduce", [array], algorithm=algorithm, chunk_bytes=256)
    computing, elsewhere, never = device.stream(), device.stream(), device.event()
    never.recorded = 1
    for turn in range(1, 4):
        staged.start()
        with computing:
            array.set(np.full(300, turn * (comm.rank + 1)))
            staged.ready(0)
        computing.wait_event(never)  # the next layer, say
        while not staged.done():
            staged.progress()
        computing.work.clear()
        with elsewhere:
            staged.follow(0)
            np.testing.assert_array_equal(array.get(), turn * comm.size * (comm.size + 1) / 2)
    staged.free()


@pytest.mark.mpi(min_size=2)
def test_a_collective_returns_before_the_device_has_done_it(on_device):
    comm, device = on_device
    array, left = device.zeros((300,), np.dtype("f4")), 0
    for _ in range(20):
        comm.allreduce(array, algorithm="ring", chunk_bytes=256)
        left += sum(len(stream.work) for stream in device.streams)
    assert left


@pytest.mark.mpi(min_size=2)
def test_a_staged_plan_has_a_fixed_number_of_slots_and_makes_nothing_anew():
    comm, device = communicator("staged")
    array = device.zeros((5000,), np.dtype("f4"))
    plan = comm.plan("reduce", array, algorithm="chain", chunk_bytes=64)
    assert isinstance(plan, SchedulePlan)
    plan.run()
    pinned, streams, maps = plan.transport._pinned, len(device.streams), len(device.maps)
    assert pinned.shape == (2, SLOTS, 64)
    plan.run()
    assert plan.transport._pinned is pinned
    assert (len(device.streams), len(device.maps)) == (streams, maps)
    comm.free()


@pytest.mark.mpi(min_size=2)
def test_memory_that_changes_is_mapped_anew_and_let_go_in_the_end():
    comm, device = communicator("staged")
    for _ in range(3):
        array = device.zeros((50,), np.dtype("f4"))
        comm.allreduce(array, algorithm="slices")
        assert len(device.mapped) == comm.size - 1
    comm.free()
    assert not device.mapped


@pytest.mark.mpi(min_size=2)
def test_without_access_to_each_others_memory_a_schedule_runs_and_the_log_says_why(caplog):
    comm, device = communicator("staged", sharing=COMM.rank != 1)
    with caplog.at_level(logging.INFO, "collectives.execution.device"):
        check(comm, device, "allreduce", 40, np.dtype("f4"), algorithm="slices")
    assert "allreduce of device arrays by ring instead of slices: a fake that shares nothing" in caplog.text
    comm.free()


@pytest.mark.mpi(min_size=2)
def test_between_nodes_schedules_take_the_place_of_leaders():
    comm, device = communicator("staged", group=Group.uniform(COMM.size))
    check(comm, device, "reduce", 40, np.dtype("f4"), algorithm="leaders-chain")
    check(comm, device, "reduce", 40, np.dtype("f4"), algorithm="slices")
    comm.free()


@pytest.mark.parametrize("what", ["reduce", "allreduce", "reduce_scatter"])
def test_auto_takes_what_joins_the_gpus_of_a_node(what):
    for has_nccl in (True, False):
        comm, device = communicator("direct")
        device.has_nccl = has_nccl
        if comm.size > 1:
            plan = comm.plan(what, device.zeros((1 << 16,), np.dtype("f4")))
            assert isinstance(plan, NcclPlan if has_nccl else PeerPlan)
        comm.free()


@pytest.mark.mpi(min_size=2)
def test_auto_follows_a_tables_rows_for_device_memory_alone():
    rows_of = {"device": "cb-2", "device through host": "binomial", "host": "flat"}
    made = [Row("reduce", 1, COMM.size, True, 0, name, 256, memory=memory) for memory, name in rows_of.items()]
    for way, name in (("direct", "cb-2"), ("staged", "binomial")):
        comm, device = communicator(way, table=Table(made, "a table"))
        plan = comm.plan("reduce", device.zeros((1 << 10,), np.dtype("f4")), staged=True)
        asked = comm.plan("reduce", device.zeros((1 << 10,), np.dtype("f4")), algorithm=name, chunk_bytes=256)
        assert plan.schedule is asked.schedule
        comm.free()


@pytest.mark.mpi(min_size=2)
def test_without_a_row_schedules_take_a_devices_chunks(monkeypatch):
    monkeypatch.setattr(maker, "DEVICE_CHUNK", 1 << 10)
    comm, device = communicator("staged", group=Group.uniform(COMM.size))
    device.has_nccl = False
    plan = comm.plan("allreduce", device.zeros((1 << 12,), np.dtype("f4")))
    assert (
        plan.schedule
        is comm.plan(
            "allreduce", device.zeros((1 << 12,), np.dtype("f4")), algorithm="ring", chunk_bytes=1 << 10
        ).schedule
    )
    comm.free()


# What can be wrong.


@pytest.mark.mpi(min_size=2)
def test_host_on_one_rank_and_device_on_another_is_an_error_on_every_rank(on_device):
    comm, device = on_device
    array = device.zeros((8,), np.dtype("f4")) if comm.rank == comm.size - 1 else np.zeros(8, np.float32)
    with pytest.raises(DisagreementError, match=f"memory of the arrays: rank 0 has 'host', rank {comm.size - 1} has"):
        comm.allreduce(array)


def test_host_and_device_in_one_call_is_an_error_on_every_rank(on_device):
    comm, device = on_device
    with pytest.raises(ArgumentError, match="recv is in host memory, send in device memory"):
        comm.allreduce(device.zeros((8,), np.dtype("f4")), np.zeros(8, np.float32))


def test_a_strided_array_and_one_of_another_device_are_errors(on_device):
    comm, device = on_device
    with pytest.raises(ArgumentError, match=r"send must be contiguous, got shape \(4,\) with strides"):
        comm.allreduce(device.zeros((8,), np.dtype("f4"))[::2])
    with pytest.raises(ArgumentError, match="send must be a CuPy array on a fake GPU, got FakeArray"):
        comm.allreduce(FakeDevice().zeros((8,), np.dtype("f4")))


def test_no_window_is_made_on_an_unknown_device(on_device):
    with pytest.raises(ArgumentError, match="unknown device 'tpu'; known devices: cpu cuda"):
        on_device[0].empty(3, device="tpu")
    assert on_device[0].empty(3, device="cuda").get().tolist() == [0, 0, 0]
