"""Which kind of plan a call gets; errors of algorithms that don't suit it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

from collectives import Communicator, Group
from collectives.errors import AlgorithmError
from collectives.execution.library import LibraryPlan
from collectives.execution.maker import CHUNK, Call, PlanMaker
from collectives.execution.node_plans import LeaderBlocksPlan, LeaderPlan, NodeBlocksPlan, NodePlan, Root
from collectives.execution.plans import Plan, SchedulePlan
from collectives.schedules.algorithms import Choice

SUM = Call("allreduce", "sum", 0, 1000, "float32", "auto", 0)
BLOCKS = SUM._replace(what="reduce_scatter")


@pytest.fixture
def maker() -> Iterator[PlanMaker]:
    comm = Communicator(MPI.COMM_SELF)
    yield comm._maker
    comm.free()


@pytest.mark.parametrize(
    ("call", "algorithm", "kind"),
    [
        (SUM, "mpi", LibraryPlan),
        (SUM._replace(elements=0), "ring", LibraryPlan),
        (SUM, "slices", NodePlan),
        (BLOCKS, "slices", NodeBlocksPlan),
        (SUM, "leaders-ring", LeaderPlan),
        (BLOCKS, "leaders-mpi", LeaderBlocksPlan),
        (SUM, "ring", SchedulePlan),
        (SUM._replace(numbers="bf16"), "ring", SchedulePlan),
    ],
)
def test_kinds(maker: PlanMaker, call: Call, algorithm: str, kind: type[Plan]) -> None:
    assert type(maker.make(call, Choice(algorithm))) is kind


@pytest.mark.parametrize(
    ("call", "algorithm", "said"),
    [
        (SUM._replace(dtype="float16"), "mpi", "'mpi' can't allreduce float16, which MPI does not support"),
        (SUM, "nccl", "'nccl' is for arrays on GPUs, these are in host memory"),
        (SUM._replace(numbers="bf16"), "leaders-ring", "'leaders-ring' can't send bf16; schedules can"),
        (SUM._replace(numbers="bf16"), "slices", "'slices' can't send bf16; schedules can"),
    ],
)
def test_what_does_not_suit_a_call_is_named(maker: PlanMaker, call: Call, algorithm: str, said: str) -> None:
    with pytest.raises(AlgorithmError, match=said):
        maker.make(call, Choice(algorithm))


def test_slices_are_for_one_node_and_leaders_for_nodes_with_equally_many_ranks(maker: PlanMaker) -> None:
    maker.nodes, maker.ranks = 2, 0
    with pytest.raises(AlgorithmError, match="'slices' works inside one node, these ranks are on 2"):
        maker.make(SUM, Choice("slices"))
    with pytest.raises(AlgorithmError, match="'leaders-ring' needs the same number of ranks on every node"):
        maker.make(SUM, Choice("leaders-ring"))


def test_chunks_are_the_call_s_the_choice_s_or_as_tcp_takes_them(maker: PlanMaker) -> None:
    for called, chosen, expected in ((64, 128, 64), (0, 128, 128), (0, 0, CHUNK)):
        plan = maker.make(SUM._replace(chunk_bytes=called), Choice("ring", chosen))
        assert isinstance(plan, SchedulePlan) and plan.schedule.chunk == expected // 4
    for name, chunk, depth in (("ring", 1 << 16, 16), ("ring", 1 << 17, 8), ("ring", 1 << 20, 4), ("chain", 64, 4)):
        plan = maker.make(SUM, Choice(name, chunk))
        assert isinstance(plan, SchedulePlan) and plan.schedule.depth == depth


def test_ranks_have_numbers_on_their_nodes(maker: PlanMaker) -> None:
    maker.group = Group.of("abba")
    assert [maker._with_number(local) for local in (0, 1)] == [[0, 1], [3, 2]]
    assert [maker._root(SUM._replace(root=root), "ring") for root in range(4)] == [
        Root(0, 0), Root(1, 0), Root(1, 1), Root(0, 1),
    ]  # fmt: skip


def test_a_call_says_its_lengths_and_what_ranks_must_agree_on() -> None:
    assert SUM.nbytes == 4000 and SUM.bounds(3) == (0, 333, 666, 1000)
    counted = BLOCKS._replace(counts=(1, 2), dtype="float16")
    assert counted.bounds(2) == (0, 1, 3) and counted.is_half_sum and not SUM.is_half_sum
    told = {**SUM.described(), **counted.described()}
    assert told["the operation"] == "reduce_scatter sum" and told["the lengths of the blocks"] == "1, 2"
    copied = Call("bcast", "", 1, 3, "float16", "chain", 8)
    assert copied.operation() is None and not copied.is_half_sum
    assert copied.described()["the algorithm"] == "chain, chunks of 8 bytes"
    assert SUM.operation() is not None and np.dtype(SUM.dtype).itemsize == 4
