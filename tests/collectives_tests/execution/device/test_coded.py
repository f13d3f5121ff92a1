"""Messages of fewer bytes from devices, which are late: the bits that hosts give, in a few slots, and what is lost.

Ranks are threads of one process, whose messages are delivered as they are sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import counted_ranks
import numpy as np
import pytest
from counted_ranks import CountedComm
from fake_device import FakeDevice

from collectives import Communicator, Group
from collectives.execution.device import aware
from collectives.execution.device.coded import DeviceCodecTransport
from collectives.execution.device.transports import SLOTS, DirectTransport, StagedTransport
from collectives.execution.operations import OPERATIONS

RANKS, COUNT = 3, 1500
CODED = ["bf16", "float16", "int8", "bf16+feedback", "int8+feedback"]


@pytest.fixture(autouse=True)
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with counted_ranks.on_gpu_nodes(monkeypatch, "not among threads"):
        yield


def row(rank: int, turn: int = 0) -> np.ndarray:
    return np.random.default_rng([rank, turn]).standard_normal(COUNT).astype(np.float32)


def over_ranks(each: int, work: Any, size: int = RANKS) -> list[Any]:
    """Return what `work(communicator, device)` returns on every rank, `each` on a node."""

    def main(comm: CountedComm) -> Any:
        device = FakeDevice(seed=comm.rank, sharing=each < size)
        return work(Communicator(comm, group=Group.uniform(size, each), device=device), device)  # type: ignore[arg-type]

    return counted_ranks.run(size, each, main)


CALLS = [
    ("allreduce", "ring"), ("allreduce", "halving"), ("allreduce", "two-tree"), ("reduce", "chain"), ("bcast", "chain"),
    ("reduce_scatter", "ring"), ("allgather", "ring"),
]  # fmt: skip


@pytest.mark.parametrize("way", ["staged", "direct"])
@pytest.mark.parametrize("numbers", CODED)
@pytest.mark.parametrize(("what", "algorithm"), CALLS)
def test_devices_give_the_bits_that_hosts_give(
    monkeypatch: pytest.MonkeyPatch, what: str, algorithm: str, numbers: str, way: str
) -> None:
    """In several turns, over two pairs of arrays, in chunks that use every slot again; and the same is lost."""
    monkeypatch.setenv(aware.VARIABLE, "1" if way == "direct" else "0")

    def work(comm: Communicator, device: FakeDevice) -> None:
        how = {"algorithm": algorithm, "chunk_bytes": 4 * 31, "numbers": numbers}
        hosts, ours = ([make((COUNT,), np.dtype("f4")) for _ in range(2)] for make in (np.zeros, device.zeros))
        for turn in range(4):
            host, array = hosts[turn % 2], ours[turn % 2]
            host[:] = row(comm.rank, turn)
            array.set(host)
            on_host, on_device = (comm.plan(what, one, **how) for one in (host, array))  # type: ignore[arg-type]
            on_host.run()
            on_device.run()
            np.testing.assert_array_equal(array.get(), host)
            if what == "bcast" and comm.rank == 0:
                np.testing.assert_array_equal(host, row(0, turn))  # the root's stay as they are
        lost = [np.zeros(COUNT, np.float32) for _ in range(3)]
        for plan, into in zip((on_host, on_device, on_device), lost, strict=True):
            plan.give_lost(into)
        np.testing.assert_array_equal(lost[0], lost[1])
        assert not lost[2].any()  # it is kept no longer

    over_ranks(RANKS, work)


@pytest.mark.parametrize("size", [5, 7])
@pytest.mark.parametrize("algorithm", ["halving", "ring", "two-tree"])
@pytest.mark.parametrize("unit", [1.0, 2e-43])
def test_all_ranks_have_the_same_sums_however_often_these_are_passed_on(size: int, algorithm: str, unit: float) -> None:
    def work(comm: Communicator, device: FakeDevice) -> bytes:
        values = row(comm.rank) * np.float32(unit)
        comm.plan("allreduce", values, algorithm=algorithm, chunk_bytes=512, numbers="int8").run()
        return values.tobytes()

    assert len({*over_ranks(size, work, size)}) == 1


@pytest.mark.parametrize("op", ["max", "mean"])
def test_every_operation_joins_what_is_decoded(op: str) -> None:
    def work(comm: Communicator, device: FakeDevice) -> None:
        host, array = row(comm.rank), device.zeros((COUNT,), np.dtype("f4"))
        array.set(host)
        for one in (host, array):
            comm.plan("allreduce", one, op=op, algorithm="ring", numbers="bf16").run()  # type: ignore[arg-type]
        np.testing.assert_array_equal(array.get(), host)

    over_ranks(RANKS, work)


def test_with_feedback_the_sums_of_many_rounds_are_right_over_nodes() -> None:
    """A value that int8 rounds to 0 beside a large one arrives in the end; what has not is what the plans have lost."""
    rounds = 50

    def work(comm: Communicator, device: FakeDevice) -> tuple[np.ndarray, np.ndarray]:
        array, total = device.zeros((1024,), np.dtype("f4")), np.zeros(1024)
        plan = comm.plan("reduce", array, algorithm="leaders-chain", numbers="int8+feedback")
        for _ in range(rounds):
            values = np.full(1024, 1e-3, np.float32)
            values[::256] = 1.0
            array.set(values)
            plan.run()
            total += array.get()
        lost = np.zeros(1024, np.float32)
        plan.give_lost(lost)
        return total, lost

    results = over_ranks(2, work, size=4)
    total, lost = results[0][0], sum(lost for _, lost in results)
    expected = np.full(1024, rounds * 4e-3)
    expected[::256] = rounds * 4
    assert np.abs(lost).max() > 1e-4
    np.testing.assert_allclose(total + lost, expected, rtol=1e-5)
    assert sum(lost.any() for _, lost in results) == 2  # of the node that sends, each GPU its part


@pytest.mark.parametrize("inner", [DirectTransport, StagedTransport])
def test_slots_are_used_in_turn_and_only_what_is_kept_needs_more_memory(inner: type) -> None:
    device = FakeDevice()
    transport = DeviceCodecTransport(inner(device), "bf16+feedback", spreads=False)  # type: ignore[arg-type]
    transport.prepare(64)
    before, streams = len(device.maps), []
    array = device.zeros((16,), np.dtype("f4"))
    zeros = device.zeros
    device.zeros = lambda *given: [streams.append(device.current()), zeros(*given)][1]  # type: ignore[method-assign]
    messages = {sent: [transport.message(array, sent) for _ in range(2 * SLOTS)] for sent in (True, False)}
    places = {sent: [one.bytes.values.ctypes.data for one in found] for sent, found in messages.items()}
    assert all(found[:SLOTS] == found[SLOTS:] and len({*found}) == SLOTS for found in places.values())
    assert not {*places[True]} & {*places[False]}
    assert len(device.maps) == before + 1 + 2 * SLOTS  # the array, and what each send has lost
    assert streams == 2 * SLOTS * [transport.up]  # where it is read
    events = [one.chunk.copied for found in messages.values() for one in found[:SLOTS]]
    assert len({*map(id, events)}) == 2 * SLOTS


def test_over_other_arrays_a_slot_goes_with_the_same_pinned_one_whose_event_it_has() -> None:
    device = FakeDevice()
    transport = DeviceCodecTransport(StagedTransport(device), "bf16", spreads=False)  # type: ignore[arg-type]
    transport.prepare(64)
    array, pairs = device.zeros((16,), np.dtype("f4")), set()
    for _ in range(2):
        for one in (transport.message(array, True) for _ in range(SLOTS + 1)):
            pairs.add((one.bytes.values.ctypes.data, one.chunk.pinned.ctypes.data))
        transport.prepare(0)
    assert len(pairs) == SLOTS


@pytest.mark.parametrize("joined", [False, True])
def test_a_slot_is_received_into_again_once_it_is_decoded(joined: bool) -> None:
    device, posted = FakeDevice(), []
    comm: Any = type("Comm", (), {"Irecv": lambda self, message, peer, tag: posted.append(tag)})()
    transport = DeviceCodecTransport(DirectTransport(device), "bf16", spreads=False)  # type: ignore[arg-type]
    transport.prepare(64)
    array = device.zeros((16,), np.dtype("f4"))
    first, *_, again = (transport.message(array, False) for _ in range(SLOTS + 1))
    transport.receive(comm, first, 1, 0)
    assert posted == [0]
    never = device.event()
    never.recorded = 1
    transport.up.wait_event(never)
    if joined:
        transport.land_joined(OPERATIONS["sum"], first, array, array, array)
    else:
        transport.land(first)
    request = transport.receive(comm, again, 1, 1)
    assert not any(request.Test() for _ in range(20)) and posted == [0]
    never.passed = 1
    while posted == [0]:
        request.Test()
    assert posted == [0, 1]
