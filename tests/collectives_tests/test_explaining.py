"""What a Communicator says of its choices: as the plan that it then makes, for arrays of hosts and of devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import counted_ranks
import pytest
from counted_ranks import CountedComm
from fake_device import FakeDevice
from mpi4py import MPI

from collectives import AlgorithmError, ArgumentError, Communicator, Group, explaining
from collectives.execution.device import aware
from collectives.execution.device.choice import DevicePlans
from collectives.execution.device.hierarchy import HierarchyPlan
from collectives.execution.plans import SchedulePlan
from collectives.schedules.algorithms import Choice
from collectives.tuning import Row, Table
from collectives.tuning.table import Shape

RANKS, NBYTES = 4, 4096
ROWS = [
    Row("reduce", 2, 2, True, 0, "binomial", 256, memory="device through host"),
    Row("reduce", 2, 2, True, 0, "flat", 256, memory="device"),
    Row("reduce", 2, 2, True, 0, "cb-2", 256),
]


@pytest.fixture(autouse=True)
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with counted_ranks.on_gpu_nodes(monkeypatch, "no NCCL here"):
        yield


def over_ranks(work: Any, each: int = 2, **how: Any) -> list[Any]:
    """Return what `work(communicator)` returns on each rank; the communicator has a device."""

    def main(comm: CountedComm) -> Any:
        device = FakeDevice(seed=comm.rank)
        made = Communicator(comm, group=Group.uniform(RANKS, each), device=device, **how)  # type: ignore[arg-type]
        return work(made)

    found = counted_ranks.run(RANKS, each, main)
    assert len({str(one) for one in found}) == 1  # all ranks are told the same
    return found


def asked(each: int = 2, **given: Any) -> str:
    """Return what is said of a reduce of device arrays, or of what is given."""
    how = {name: given.pop(name) for name in ("table", "through_host") if name in given}
    question = {"what": "reduce", "nbytes": NBYTES, "device": "cuda"} | given
    said: str = over_ranks(lambda comm: comm.explain(**question), each, **how)[0]
    return said


def test_without_a_table_it_is_what_joins_the_gpus() -> None:
    said = asked()
    assert f"reduce of {NBYTES} bytes in device memory, 2 node(s)" in said
    assert ": leaders-chain, no table has a row for such arrays; each GPU carries its part between the nodes" in said
    assert "on a fake GPU; MPI takes copies in pinned memory; between ranks of a node: CUDA IPC" in said
    assert ": slices, no table has a row for such arrays; ranks map each other's memory" in asked(each=RANKS)
    assert ": leaders-ring, " in asked(what="allreduce")


def test_where_a_rank_may_be_lost_it_says_so() -> None:
    said = asked(through_host=True)
    assert ": leaders-chain, " in said and "no CUDA IPC (a process that another GPU waits for may end)" in said


def test_nccl_is_named_where_every_rank_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DevicePlans, "why_no_nccl", "")
    assert ": nccl, no table has a row for such arrays; every rank has a GPU of its own" in asked()
    assert ": leaders-chain, for int8; each GPU carries its part" in asked(numbers="int8")
    assert "in device memory as int8" in asked(numbers="int8")


@pytest.mark.parametrize(("way", "name"), [("0", "binomial"), ("1", "flat")])
def test_a_tables_row_for_that_memory_decides(monkeypatch: pytest.MonkeyPatch, way: str, name: str) -> None:
    monkeypatch.setenv(aware.VARIABLE, way)
    table = Table(ROWS, "a table")
    assert f": {name} in chunks of 256 bytes, best from 0 bytes" in asked(table=table)
    assert ": cb-2 in chunks of 256 bytes, best from 0 bytes" in asked(table=table, device="cpu")
    assert "memory" not in asked(table=table, device="cpu")


def test_a_row_that_rounds_no_messages_counts_for_others_alone() -> None:
    table = Table([Row("reduce", 2, 2, True, 0, "nccl", memory="device through host")], "a table")
    assert ": chain, no NCCL here; on" in asked(table=table)
    assert ": leaders-chain, for bf16; each GPU carries its part" in asked(table=table, numbers="bf16")


def test_what_is_asked_for_by_name_may_be_replaced_and_the_reason_is_given() -> None:
    assert ": binomial, as asked; on a fake GPU" in asked(algorithm="binomial")
    assert ": chain, these ranks are on several nodes; on" in asked(algorithm="slices")


def test_of_leaders_the_bytes_that_cross_supernodes_are_those_between_nodes() -> None:
    call, group = explaining.asked("reduce", NBYTES, "leaders-flat", "cuda", ""), Group.uniform(8, 2, 2)
    said = explaining.said(call, Choice(call.algorithm), Shape(4, 2), group, "")
    assert f"; 2 supernodes; {2 * NBYTES} bytes cross them" in said  # of two nodes, not of four ranks


@pytest.mark.parametrize("numbers", ["", "bf16"])
@pytest.mark.parametrize("what", ["allreduce", "reduce"])
def test_the_plan_is_the_one_that_was_told(what: str, numbers: str) -> None:
    def work(comm: Communicator) -> None:
        said = comm.explain(what, NBYTES, device="cuda", numbers=numbers)
        plan = comm.plan(what, comm.empty(NBYTES // 4, device="cuda"), numbers=numbers)
        assert isinstance(plan, HierarchyPlan) and isinstance(plan.between, SchedulePlan)
        assert f": leaders-{plan.between.schedule.algorithm}, " in said

    over_ranks(work)


def test_what_cannot_be_told_is_an_error_on_all() -> None:
    def work(comm: Communicator) -> None:
        for given, error, text in (
            ({"device": "tpu"}, ArgumentError, "unknown device 'tpu'; known devices: cpu cuda"),
            ({"numbers": "int4"}, ArgumentError, "unknown numbers 'int4'"),
            ({"algorithm": "mpi", "device": "cuda", "numbers": "bf16"}, AlgorithmError, "'mpi' can't send bf16"),
        ):
            with pytest.raises(error, match=text):
                comm.explain("reduce", NBYTES, **given)  # type: ignore[arg-type]

    over_ranks(work)


@pytest.mark.parametrize("algorithm", ["mpi", "slices", "leaders-ring"], ids="by {}".format)
def test_what_can_send_no_such_numbers_is_refused_for_hosts_too(algorithm: str) -> None:
    with Communicator(MPI.COMM_SELF) as comm, pytest.raises(AlgorithmError, match=f"'{algorithm}' can't send int8"):
        comm.explain("allreduce", NBYTES, algorithm=algorithm, numbers="int8")
