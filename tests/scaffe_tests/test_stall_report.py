"""What a stall's report says, and what travels between nodes."""

from __future__ import annotations

import os
from pathlib import Path

import nets
import pytest

from scaffe import Solver
from scaffe.errors import ScaffeError
from scaffe.monitor.record import (
    BACKWARD,
    BEAT,
    FORWARD,
    LOSS,
    PARAMETERS,
    RANKS,
    SET_UP,
    SINCE,
    SNAPSHOT,
    SUMS,
    TEST,
    UPDATE,
    Record,
    Seen,
)  # fmt: skip
from scaffe.parallel.beacon import TOKEN_BYTES, pack, unpack
from scaffe.parallel.stall import MOST_LINES, Layers, report

S = 10**9
NOW = 1000 * S
PATIENCE = 60.0


class Named(Layers):
    """A train net and a test net of three layers, of which the first reads."""

    def __init__(self) -> None:
        self.names = [["data", "conv1", "loss"], ["data", "ip1", "accuracy"]]
        self.reading = [[True, False, False]] * 2


def seen(rank: int, operation: int, layer=-1, wait=0, net=0, iteration=7, idle=70, silent=1) -> Seen:
    row = iteration, net, operation, layer, wait, NOW - idle * S, NOW - silent * S
    return Seen(rank, f"host{rank}", row, NOW)


def said(*ranks: Seen) -> list[str]:
    return report(ranks[0], ranks[1:], Named(), PATIENCE)


WAITING = seen(0, UPDATE, wait=SUMS, idle=62)
UNMOVED = "rank 0 has not moved for 62 s: update, waiting for the sums of gradients, iteration 7; "


def test_a_rank_that_computes_is_missing_and_one_that_waits_is_not() -> None:
    assert said(WAITING, seen(1, BACKWARD, 1), seen(2, FORWARD, 1, PARAMETERS, iteration=8)) == [
        UNMOVED + "missing:",
        "rank 1 on host1: last seen in backward pass of layer conv1, iteration 7, 70 s ago",
    ]


def test_a_rank_that_was_stopped_while_it_waited_is_missing() -> None:
    assert said(WAITING, seen(1, LOSS, wait=RANKS, silent=65)) == [
        UNMOVED + "missing:",
        "rank 1 on host1: last seen in agreement on the loss, waiting for the other ranks, iteration 7, 70 s ago; "
        "its process has not run for 65 s",
    ]


def test_a_rank_that_moves_is_not_missing() -> None:
    assert "rank 1" not in said(WAITING, seen(1, BACKWARD, 1, idle=2), seen(2, BACKWARD, 1))[1]


def test_readers_tests_snapshots_and_the_set_up_are_named() -> None:
    lines = said(WAITING, seen(1, FORWARD, 0), seen(2, TEST, 0, net=1), seen(3, TEST, 1, net=1), seen(4, SNAPSHOT),
                 seen(5, SET_UP))  # fmt: skip
    assert [line.split("last seen in ")[1].removesuffix(", iteration 7, 70 s ago") for line in lines[1:]] == [
        "forward pass, waiting for records of layer data",
        "test net #0, waiting for records of layer data",
        "test net #0, layer ip1",
        "snapshot",
        "set-up",
    ]


def test_where_all_wait_all_are_told() -> None:
    lines = said(WAITING, seen(1, FORWARD, 1, PARAMETERS), seen(2, UPDATE, wait=SUMS))
    assert lines[0] == UNMOVED + "no rank is missing, all wait or move:"
    assert [line[:6] for line in lines[1:]] == ["rank 1", "rank 2"]
    assert "forward pass of layer conv1, waiting for the root's parameters" in lines[1]


def test_a_rank_that_waits_for_its_own_reader_says_so() -> None:
    me = seen(0, FORWARD, 0, idle=62)
    assert said(me, seen(1, LOSS, wait=RANKS)) == [
        "rank 0 has not moved for 62 s: forward pass, waiting for records of layer data, iteration 7; "
        "no other rank is missing"
    ]


def test_a_node_that_was_never_heard_of_is_named() -> None:
    unknown = Seen(1, "far", (0,) * 7, NOW)
    assert said(WAITING, unknown)[1] == "rank 1 on far: nothing is known of it, no message came from its node"


def test_a_report_on_many_ranks_is_short() -> None:
    lines = said(WAITING, *(seen(rank, BACKWARD, 1) for rank in range(1, 100)))
    assert len(lines) == MOST_LINES + 2 and lines[-1] == f"and {99 - MOST_LINES} more ranks"


def test_a_record_says_where_a_rank_waits_and_then_what_it_did_before() -> None:
    record, layers = Record(), Named()
    record.begin(3)
    record.at(BACKWARD, 1)
    with pytest.raises(ValueError), record.waiting(RANKS):
        assert layers.place(record.row) == "backward pass of layer conv1, waiting for the other ranks, iteration 3"
        raise ValueError
    assert layers.place(record.row) == "backward pass of layer conv1, iteration 3"


def test_times_of_a_node_with_another_clock_become_ours() -> None:
    token = os.urandom(TOKEN_BYTES)
    rows = [(7, 0, BACKWARD, 1, 0, 40 * S, 45 * S), (8, 0, LOSS, -1, RANKS, 20 * S, 50 * S)]
    received = dict(unpack(token, pack(token, rows, [0, 1], 50 * S), NOW))
    assert received.keys() == {0, 1}
    assert list(received[0]) == [7, 0, BACKWARD, 1, 0, NOW - 10 * S, NOW - 5 * S]
    assert (received[1][SINCE], received[1][BEAT]) == (NOW - 30 * S, NOW)


def test_what_is_not_this_jobs_datagram_is_ignored() -> None:
    token = os.urandom(TOKEN_BYTES)
    datagram = pack(token, [(0,) * 7], [0], NOW)
    for foreign in (
        b"",
        datagram[:-1],
        datagram[:TOKEN_BYTES] + b"x",
        os.urandom(TOKEN_BYTES) + datagram[TOKEN_BYTES:],
    ):
        assert not list(unpack(token, foreign, NOW))


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(tmp_path: Path, seconds: float) -> None:
    nets.write_images(tmp_path / "db", 12)
    with pytest.raises(ScaffeError, match=rf"stall_seconds must be 0 \(off\) or more, got {seconds:g}"):
        Solver(nets.solver_with(nets.tower(tmp_path / "db")), stall_seconds=seconds)
