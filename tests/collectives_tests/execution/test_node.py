"""A node of one rank, and of more that are made up: where arrays lie, and how elements move between them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from collectives.errors import ArgumentError, DisagreementError
from collectives.execution import node as nodes
from collectives.execution.node import NodeComm, RemoteBuffer, blocks
from collectives.execution.operations import OPERATIONS

FLOAT = np.dtype("f4")


@pytest.fixture
def node() -> Iterator[NodeComm]:
    made = NodeComm(MPI.COMM_SELF)
    yield made
    made.free()


def test_slices_and_blocks_make_up_all_elements() -> None:
    found = [NodeComm.slice(SimpleNamespace(rank=rank, size=3), 10) for rank in range(3)]  # type: ignore[arg-type]
    assert found == [(0, 3), (3, 6), (6, 10)]
    assert list(blocks(5, 12, 3)) == [(5, 8), (8, 11), (11, 12)] and list(blocks(4, 4)) == []


def test_windows_are_found_by_what_lies_in_them(node: NodeComm) -> None:
    first, second, own = node.empty((2, 4), FLOAT), node.empty((4,), FLOAT), np.zeros(4, FLOAT)
    assert first.shape == (2, 4) and not first.any()
    assert node.holds(first) and node.holds(second[2:]) and not node.holds(own)
    assert [node.window_of(one) for one in (first, second, np.empty(0))] == [0, 1, -1]
    for wrong in (own, second[2:], [1.0]):
        with pytest.raises(ArgumentError, match="only arrays that `empty` returned"):
            node.window_of(wrong)  # type: ignore[arg-type]
    node.give_back(first)
    assert node.window_of(second) == 0 and len(node.windows) == 1


@pytest.mark.parametrize("in_window", [True, False])
def test_elements_are_taken_and_written_where_they_lie(node: NodeComm, in_window: bool) -> None:
    array = node.empty((6,), FLOAT) if in_window else np.zeros(6, FLOAT)
    array[:] = range(6)
    list(node.announce(array, array, wait=True))
    (source,), (target,) = node.sources, node.targets
    assert source == target and (source.window >= 0) == in_window
    into = np.empty(2, FLOAT)
    found = node.fetch(source, 3, into)
    assert found.tolist() == [3, 4] and (found is into) != in_window
    node.put(target, 1, np.array([7, 8], FLOAT))
    assert array.tolist() == [0, 7, 8, 3, 4, 5]


def announced(node: NodeComm, rows: list[list[int]]) -> None:
    """Let ranks announce these bytes, windows and places, whatever this rank says."""

    def allgather(mine: object, every: list) -> None:
        every[0][...] = rows

    node._announced, node.size = np.zeros((len(rows), 5), np.int64), len(rows)
    node.comm = SimpleNamespace(Allgather=allgather)  # type: ignore[assignment]
    list(node.announce(np.zeros(2, FLOAT), np.zeros(2, FLOAT), wait=True))


def test_where_all_ranks_arrays_are_is_known_afterwards(node: NodeComm) -> None:
    announced(node, [[8, 0, 10, 0, 20], [8, -1, 30, 1, 40]])
    assert node.sources == [RemoteBuffer(0, 0, 10), RemoteBuffer(1, -1, 30)]
    assert node.targets == [RemoteBuffer(0, 0, 20), RemoteBuffer(1, 1, 40)]


def test_other_lengths_and_memory_out_of_reach_are_errors(node: NodeComm) -> None:
    with pytest.raises(DisagreementError, match="differ in bytes: rank 0 has 8, rank 1 has 4"):
        announced(node, [[8, 0, 0, 0, 0], [4, 0, 0, 0, 0]])
    node.has_peers = False
    for row in ([8, -1, 0, 0, 0], [8, 0, 0, -1, 0]):
        with pytest.raises(ArgumentError, match="rank 1 of the node has its array where the others can't read it"):
            announced(node, [[8, 0, 0, 0, 0], row])
    announced(node, [[8, -1, 0, -1, 0]])  # alone


def test_the_end_comes_once_all_have_done_their_part(node: NodeComm) -> None:
    met: list[str] = []
    node.comm = SimpleNamespace(  # type: ignore[assignment]
        Barrier=lambda: met.append("waited"), Ibarrier=lambda: met.append("asked")
    )
    assert list(node.finish(wait=True)) == [] and list(node.finish(wait=False)) == [None] and met == ["waited", "asked"]


def test_a_result_that_others_get_has_the_arrays_type() -> None:
    node = NodeComm(MPI.COMM_SELF)
    for dtype in (np.dtype("f2"), FLOAT):
        assert (node.result(dtype, 3).dtype, node.result(dtype, 3).size) == (dtype, 3)


def test_memory_is_ordered_before_and_after_each_message(node: NodeComm, monkeypatch: pytest.MonkeyPatch) -> None:
    array, orders = node.empty((2,), FLOAT), []
    monkeypatch.setattr(node.windows[0], "sync", lambda: orders.append(1))
    for wait in (True, False):
        for steps in (node.announce(array, array, wait), node.finish(wait)):
            list(steps)
            assert len(orders) == 2
            orders.clear()


@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_blocks_are_joined_in_the_ranks_order(monkeypatch: pytest.MonkeyPatch, node: NodeComm, op: str) -> None:
    monkeypatch.setattr(nodes, "BLOCK", 3)
    rows = np.random.default_rng(1).standard_normal((3, 10)).astype(FLOAT)
    windows = [node.empty((10,), FLOAT) for _ in rows]
    for window, row in zip(windows, rows, strict=True):
        window[:] = row
    node.sources = [RemoteBuffer(0, number, 0) for number in range(3)]
    node.rank, node.size = 1, 3
    out = np.zeros(7, FLOAT)
    node.join(windows[1], OPERATIONS[op], 2, out)
    joined = {"sum": (rows[0] + rows[1]) + rows[2], "mean": ((rows[0] + rows[1]) + rows[2]) / FLOAT.type(3)}
    np.testing.assert_array_equal(out, joined.get(op, rows.max(0))[2:9])
