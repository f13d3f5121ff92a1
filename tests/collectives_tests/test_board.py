"""The board: what a rank runs in a call, as others read it, and for how long it is known."""

import pytest
from mpi4py import MPI

from collectives.board import BEGUN, KEPT, UNKNOWN, Board


@pytest.fixture
def board():
    made = Board(MPI.COMM_SELF)
    yield made
    made.free()


def test_a_run_lasts_until_the_next_change(board) -> None:
    board.change(2, 8)
    board.change(5, 12)
    board.own[BEGUN] = 9
    assert board.last == 9
    assert [board.runs(call) for call in (1, 2, 4, 5, 9, 10)] == [{UNKNOWN}, {8}, {8}, {12}, {12}, set()]


def test_what_is_too_long_ago_is_unknown(board) -> None:
    for call in range(1, KEPT + 2):
        board.change(call, 4 * call)
    board.own[BEGUN] = KEPT + 1
    assert [board.runs(call) for call in (1, 2, KEPT + 1)] == [{UNKNOWN}, {8}, {4 * (KEPT + 1)}]


def test_it_is_freed_once(board) -> None:
    board.free()
    board.free()
    assert board.rows == []
