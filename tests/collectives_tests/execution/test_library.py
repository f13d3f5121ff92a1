"""What the MPI library is called with, on rank 1 of 3."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collectives.execution.library import LibraryPlan
from collectives.execution.operations import OPERATIONS

BOUNDS = (0, 2, 5, 9)
COUNTS, PLACES = (2, 3, 4), (0, 2, 5)
FLOAT = np.dtype("f4")


class Noted:
    """A communicator that notes its calls; each fills the array of the result, if there is one, with sixes."""

    rank, size = 1, 3

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            self.calls.append((name, given))
            if len(given) > 1 and isinstance(given[1], list):
                np.asarray(given[1][0])[...] = 6
            return SimpleNamespace(Wait=lambda: None, Test=lambda: True)

        return call


def plan(what: str, op: str | None = None, root: int = 0) -> tuple[LibraryPlan, Noted]:
    comm: Any = Noted()
    return LibraryPlan(comm, what, op and OPERATIONS[op], root, FLOAT, BOUNDS), comm  # type: ignore[arg-type]


SEND, RECV, BLOCK = np.zeros(9, FLOAT), np.zeros(9, FLOAT), np.zeros(3, FLOAT)
TYPED = {name: [one, MPI.FLOAT] for name, one in (("send", SEND), ("recv", RECV), ("block", BLOCK))}
IN_BLOCKS = [RECV, (COUNTS, PLACES), MPI.FLOAT]


@pytest.mark.parametrize(
    ("what", "op", "arrays", "called", "given"),
    [
        ("reduce", "max", (SEND, None), "Reduce", [TYPED["send"], None, MPI.MAX, 2]),
        ("reduce", "sum", (SEND, SEND), "Reduce", [MPI.IN_PLACE, TYPED["send"], MPI.SUM, 2]),
        ("bcast", None, (SEND, None), "Bcast", [TYPED["send"], 2]),
        ("allreduce", "min", (SEND, RECV), "Allreduce", [TYPED["send"], TYPED["recv"], MPI.MIN]),
        ("reduce_scatter", "sum", (SEND, BLOCK), "Reduce_scatter", [TYPED["send"], TYPED["block"], COUNTS, MPI.SUM]),
        ("allgather", None, (BLOCK, RECV), "Allgatherv", [TYPED["block"], IN_BLOCKS]),
        ("allgather", None, (RECV, RECV), "Allgatherv", [MPI.IN_PLACE, IN_BLOCKS]),
        ("alltoall", None, (SEND, RECV), "Alltoall", [TYPED["send"], TYPED["recv"]]),
        ("gather", None, (BLOCK, None), "Gatherv", [TYPED["block"], None, 2]),
        ("scatter", None, (BLOCK, BLOCK), "Scatterv", [None, TYPED["block"], 2]),
        ("barrier", None, (SEND, SEND), "Barrier", []),
    ],
)
def test_arguments(what: str, op: str | None, arrays: tuple[Any, Any], called: str, given: list[Any]) -> None:
    made, comm = plan(what, op, root=2)
    made.bind(*arrays)
    made.run()
    list(made.steps(wait=False))
    assert [(name, [*arguments]) for name, arguments in comm.calls] == [(called, given), (f"I{called.lower()}", given)]
    call = made.call_over(*arrays)
    assert call is not None
    call()
    assert [over_addresses(one) for one in comm.calls[-1][1]] == [over_addresses(one) for one in given]


def over_addresses(given: Any) -> Any:
    """An argument whose array is told by its address and its bytes."""
    if not isinstance(given, list):
        return given
    return [MPI.Get_address(given[0]), given[0].nbytes, *given[1:]]


def test_a_scatter_in_place_leaves_the_root_s_block_where_it_is() -> None:
    made, comm = plan("scatter", root=1)
    made.bind(RECV, RECV)
    made.run()
    assert comm.calls == [("Scatterv", (IN_BLOCKS, MPI.IN_PLACE, 1))]


def test_a_block_that_the_library_would_put_at_the_beginning_comes_to_its_place() -> None:
    vector = np.zeros(9, FLOAT)
    made, _ = plan("reduce_scatter", "sum")
    assert made.call_over(vector, vector) is None
    made.bind(vector, vector)
    made.run()
    assert vector.tolist() == [0, 0, 6, 6, 6, 0, 0, 0, 0]


def test_a_mean_is_a_sum_that_is_divided_where_there_is_a_result() -> None:
    made, comm = plan("allreduce", "mean")
    assert made.call_over(SEND, RECV) is None
    for run in (made.run, lambda: list(made.steps(wait=False))):
        result = np.zeros(9, FLOAT)
        made.bind(SEND, result)
        run()
        assert (result == 2).all() and comm.calls[-1][1][2] == MPI.SUM
    made, _ = plan("reduce", "mean", root=2)
    made.bind(SEND, None)
    made.run()
