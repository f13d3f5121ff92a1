from __future__ import annotations

import subprocess
import sys

import pytest

from collectives.errors import AlgorithmError
from collectives.schedules.algorithms import (
    Choice,
    check_algorithm,
    downwards,
    every_name,
    make_schedule,
    with_chain_size,
)
from collectives.schedules.schedule import StepKind


def test_one_rank_of_many_is_computed_alone() -> None:
    schedule = make_schedule("reduce", "ccb-8", 10**5, 100, chunk=50, root=7)
    assert [step.kind for step in schedule.rank(6)] == [StepKind.SEND] * 2


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("gather", "chain", 4, 4), {}, "unknown collective 'gather'"),
        (("reduce", "ring", 4, 4), {}, "reduce has no algorithm 'ring'"),
        (("reduce_scatter", "chain", 4, 4), {}, "reduce_scatter has no algorithm 'chain'; known are ring, halving"),
        (
            ("allgather", "ring", 4, 4),
            {"counts": [1, 1, 2]},
            "counts must be 4 numbers from 0 on with the sum 4, got 3",
        ),
        (("allgather", "ring", 2, 4), {"counts": [1, 1]}, "with the sum 4, got 2 with the sum 2"),
        (("allgather", "ring", 2, 4), {"counts": [5, -1]}, "counts must be 2 numbers from 0 on"),
        (("allreduce", "cb-8:levels", 4, 4), {}, "goes with a reduce"),
        (("reduce", "chain", 0, 4), {}, "size is 0"),
        (("reduce", "chain", 4, -1), {}, "elements is -1"),
        (("reduce", "chain", 4, 4), {"chunk": 0}, "chunk is 0"),
        (("reduce", "chain", 4, 4), {"depth": 1}, "depth is 1; it must be at least 2"),
        (("reduce", "chain", 4, 4), {"root": 4}, "root 4 is not one of 4 ranks"),
        (("reduce", "chain", 4, 4), {"order": [1, 0, 2, 3]}, "root 0 first"),
    ],
)
def test_impossible_schedules_are_refused(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(AlgorithmError, match=message):
        make_schedule(*arguments, **options)


def test_schedules_need_no_mpi() -> None:
    program = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "import collectives, collectives.check, collectives.simulation.cost, collectives.model\n"
        "collectives.check.check(collectives.make_schedule('reduce', 'cb-2', 5, 9, chunk=2))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_root_s_circle_is_the_order_by_default() -> None:
    schedule = make_schedule("reduce", "chain", 4, 1, root=2)
    assert [schedule.rank(rank)[-1].peer for rank in (3, 0, 1)] == [2, 3, 0]


def test_a_communicator_has_other_names_besides_schedules() -> None:
    for name in ("auto", "mpi", "slices", "nccl", "leaders-mpi", "leaders-cb-8", "ring"):
        check_algorithm("allreduce", name)
        assert name.startswith("leaders-") or name in every_name()
    check_algorithm("reduce", "cb:levels", 8)
    for name in ("leaders-magic", "magic"):
        with pytest.raises(AlgorithmError, match="'magic'; known are .*; besides these schedules there are auto, mpi"):
            check_algorithm("reduce", name)


def test_names_with_their_chain_size_and_of_the_way_back() -> None:
    assert with_chain_size("cb:levels", 8) == "cb-8:levels" and with_chain_size("cb-4", None) == "cb-4"
    assert downwards("cb-8:levels") == "cb-8" == downwards("cb-8")
    assert [str(Choice("chain", 64)), str(Choice("mpi"))] == ["chain in chunks of 64 bytes", "mpi"]
