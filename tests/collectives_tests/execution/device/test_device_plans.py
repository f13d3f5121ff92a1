"""Plans of device arrays without a schedule, over a fake GPU and one rank; slices of more."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from fake_device import FakeDevice
from mpi4py import MPI

from collectives.errors import ArgumentError
from collectives.execution.device.plans import ALIGNED, DeviceLibraryPlan, PeerPlan, _slice, why_no_peers
from collectives.execution.device.transports import DirectTransport, StagedTransport
from collectives.execution.library import LibraryPlan
from collectives.execution.operations import OPERATIONS

FLOAT = np.dtype("f4")


@pytest.mark.parametrize(("count", "size"), [(0, 3), (1, 3), (64, 3), (1000, 3), (4096, 4), (4097, 5)])
def test_slices_begin_where_16_bytes_do(count: int, size: int) -> None:
    found = [_slice(count, rank, size) for rank in range(size)]
    assert found[0][0] == 0 and found[-1][1] == count
    assert all(one[1] == other[0] for one, other in zip(found, found[1:], strict=False))
    assert all(start % ALIGNED == 0 or start == count for start, _ in found)
    longest = max(stop - start for start, stop in found)
    assert longest <= -(-count // (ALIGNED * size)) * ALIGNED


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("apart", [False, True])
def test_slices_join_what_is_marked_and_are_followed(op: str, apart: bool) -> None:
    device = FakeDevice(seed=4)
    plan = PeerPlan(MPI.COMM_SELF, device, "allreduce", OPERATIONS[op], 0)  # type: ignore[arg-type]
    send, recv = device.zeros((100,), FLOAT), device.zeros((100,), FLOAT)
    for turn in (1, 2):
        send.set(np.full(100, turn))
        plan.bind(send, recv if apart else None)  # type: ignore[arg-type]
        plan.run()
        assert (recv if apart else send).get().tolist() == [turn] * 100
    plan.free()
    assert not device.mapped


def test_memory_that_cannot_be_shared_is_an_error_with_the_rank() -> None:
    device = FakeDevice(sharing=False)
    plan = PeerPlan(MPI.COMM_SELF, device, "allreduce", OPERATIONS["sum"], 0)  # type: ignore[arg-type]
    plan.bind(device.zeros((3,), FLOAT), None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="rank 0: a fake that shares nothing"):
        plan.run()
    assert why_no_peers(MPI.COMM_SELF, device) == "a fake that shares nothing"  # type: ignore[arg-type]


def test_each_rank_maps_a_probe_of_every_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks, whose memory is that of this process."""
    device, comm = FakeDevice(), SimpleNamespace(rank=0, allgather=lambda mine: [mine, mine])
    opened, map_it = [], device.open
    monkeypatch.setattr(device, "open", lambda handle: opened.append(handle) or map_it(handle))
    assert why_no_peers(comm, device) == "" and len(opened) == 1 and not device.mapped  # type: ignore[arg-type]

    def refuse(handle: bytes) -> int:
        raise ArgumentError("no peer access")

    monkeypatch.setattr(device, "open", refuse)
    assert why_no_peers(comm, device) == "rank 0 and rank 1: no peer access"  # type: ignore[arg-type]


class Doubled(LibraryPlan):
    """The library's allreduce, as of two equal ranks: it doubles what it is given, in host memory or on the device."""

    def steps(self, wait: bool):  # type: ignore[no-untyped-def]
        send, recv = self.send, self.send if self.recv is None else self.recv
        values = [getattr(one, "values", one) for one in (send, recv)]
        np.multiply(values[0], 2, out=values[1])
        self.has_divided = bool(self.op and self.op.divided)
        if self.has_divided:
            values[1] /= 2
        yield from ()


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_the_library_gets_what_the_stream_has_done_and_a_mean_is_divided_once(direct: bool, apart: bool) -> None:
    device = FakeDevice(seed=2)
    library = Doubled(MPI.COMM_SELF, "allreduce", OPERATIONS["mean"], 0, FLOAT)
    transport = DirectTransport(device) if direct else StagedTransport(device)  # type: ignore[arg-type]
    plan = DeviceLibraryPlan(library, transport, direct)
    send, recv = device.zeros((5,), FLOAT), device.zeros((5,), FLOAT)
    divided = []
    device.divide = lambda values, ranks, stream: divided.append(ranks)  # type: ignore[method-assign,assignment]
    for turn in (1, 2):
        send.set(np.full(5, turn))
        plan.bind(send, recv if apart else send)  # type: ignore[arg-type]
        plan.run()
        assert (recv if apart else send).get().tolist() == [turn * (2 if direct else 1)] * 5
    assert library.has_divided is not direct and divided == ([1, 1] if direct else [])
