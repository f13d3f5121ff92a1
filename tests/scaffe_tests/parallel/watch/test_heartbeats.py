"""What a stall's report says, and what travels between nodes."""

from __future__ import annotations

import os
import socket
import time
from array import array
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import nets
import pytest
from mpi4py import MPI

from collectives.group import Group
from scaffe import Solver
from scaffe.errors import ScaffeError
from scaffe.monitor.record import (
    BACKWARD,
    END,
    FORWARD,
    INSTANCES,
    LOSS,
    NBYTES,
    PARAMETERS,
    RANKS,
    SET_UP,
    SINCE_WORD,
    SNAPSHOT,
    SUMS,
    TEST,
    UPDATE,
    WAIT,
    WHAT_WORD,
    WORDS,
    Observation,
    RankRecord,
    packed,
    threads,
    unpacked,
)  # fmt: skip
from scaffe.monitor.watching import Watching
from scaffe.parallel.watch import heartbeats
from scaffe.parallel.watch.datagrams import DIGEST_BYTES, LAST, TOKEN_BYTES, Datagrams, ForeignError, Peer, pack, unpack
from scaffe.parallel.watch.heartbeats import Heartbeats
from scaffe.parallel.watch.report import MOST_LINES, LayerNames, report
from scaffe.parallel.world import World

S = 10**9
NOW = 1000 * S
PATIENCE = 60.0


class Named(LayerNames):
    """A train net and a test net of three layers, of which the first reads."""

    def __init__(self) -> None:
        self.names = [["data", "conv1", "loss"], ["data", "ip1", "accuracy"]]
        self.reading = [[True, False, False]] * 2


def seen(rank: int, operation: int, layer=-1, wait=0, net=0, iteration=7, idle=70, silent=1) -> Observation:
    row = iteration, net, operation, layer, wait, NOW - int(idle * S), NOW - silent * S
    return Observation(rank, f"host{rank}", row, NOW)


def said(*ranks: Observation) -> list[str]:
    return report(ranks[0], ranks[1:], Named(), PATIENCE)


WAITING = seen(0, UPDATE, wait=SUMS, idle=62)
UNMOVED = "rank 0 has not moved for 62 s: update, waiting for the sums of gradients, iteration 7; "


def test_a_rank_that_computes_is_missing_and_one_that_waits_is_not() -> None:
    assert said(WAITING, seen(1, BACKWARD, 1), seen(2, FORWARD, 1, PARAMETERS, iteration=8)) == [
        UNMOVED + "missing:",
        "rank 1 on host1: last seen in backward pass of layer conv1, iteration 7, 70 s ago",
    ]


def with_instances(rank: int, *rows: tuple[int, ...], idle: int = 70) -> Observation:
    """Return a rank whose main thread and instances have these operations, layers and waits."""
    row, *instances = (seen(rank, *row, idle=idle).row for row in rows)
    return Observation(rank, f"host{rank}", row, NOW, instances)


def test_the_instances_of_a_missing_rank_are_named_those_that_compute_first() -> None:
    resting = BACKWARD, -1, INSTANCES
    drives = FORWARD, -1, INSTANCES
    stuck = with_instances(1, drives, resting, resting, (BACKWARD, 1), resting)
    waits = with_instances(2, drives, resting, (FORWARD, 1, PARAMETERS))
    agrees = with_instances(3, (LOSS, -1, RANKS), (BACKWARD, 1), resting)
    assert said(WAITING, stuck, waits, agrees) == [
        UNMOVED + "missing:",
        "rank 1 on host1: last seen in instance 2 in backward pass of layer conv1; instances 0-1,3 in backward pass, "
        "waiting for the other instances; iteration 7, 70 s ago",
        "rank 3 on host3: last seen in agreement on the loss, waiting for the other ranks; instance 0 in backward pass "
        "of layer conv1; instance 1 in backward pass, waiting for the other instances; iteration 7, 70 s ago",
    ]


def test_a_test_by_instances_outside_of_training_has_no_iteration() -> None:
    one = with_instances(1, (TEST, -1, INSTANCES), (TEST, 1), (TEST, 2))
    assert said(WAITING, one)[1] == (
        "rank 1 on host1: last seen in instance 0 in test, layer conv1; instance 1 in test, layer loss, 70 s ago"
    )


def test_a_rank_moves_as_long_as_one_of_its_instances_does() -> None:
    row, moving = seen(1, BACKWARD, 1).row, seen(1, BACKWARD, 1, idle=2).row
    one = Observation(1, "host1", row, NOW, [moving, row])
    assert one.idle == 2 and not one.is_waiting


def test_instances_that_all_rest_are_not_named() -> None:
    resting = BACKWARD, -1, INSTANCES
    me = with_instances(0, (UPDATE, -1, SUMS), resting, resting, idle=62)
    assert said(me, seen(1, BACKWARD, 1))[0] == UNMOVED + "missing:"
    me = with_instances(0, (FORWARD, -1, INSTANCES), (FORWARD, 1, PARAMETERS), (FORWARD, 1, PARAMETERS), idle=62)
    place = "instances 0-1 in forward pass of layer conv1, waiting for the root's parameters; iteration 7"
    assert said(me, seen(1, BACKWARD, 1))[0] == f"rank 0 has not moved for 62 s: {place}; missing:"


def test_a_rank_that_was_stopped_while_it_waited_is_missing() -> None:
    assert said(WAITING, seen(1, LOSS, wait=RANKS, silent=65)) == [
        UNMOVED + "missing:",
        "rank 1 on host1: last seen in agreement on the loss, waiting for the other ranks, iteration 7, 70 s ago; "
        "its process has not run for 65 s",
    ]


def test_a_rank_whose_program_has_ended_is_missing() -> None:
    assert said(WAITING, seen(1, UPDATE, wait=END), seen(2, LOSS, wait=RANKS)) == [
        UNMOVED + "missing:",
        "rank 1 on host1: last seen in update, at the end of its program, iteration 7, 70 s ago",
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
    assert lines[0] == UNMOVED + "the others wait too, or work on:"
    assert [line[:6] for line in lines[1:]] == ["rank 1", "rank 2"]
    assert "forward pass of layer conv1, waiting for the root's parameters" in lines[1]


def test_a_stall_of_less_than_a_second_is_told_in_tenths() -> None:
    assert said(seen(0, UPDATE, wait=SUMS, idle=0.14), seen(1, BACKWARD, 1, idle=0.2))[0].startswith(
        "rank 0 has not moved for 0.1 s: "
    )


def test_a_rank_that_waits_for_its_own_reader_says_so() -> None:
    me = seen(0, FORWARD, 0, idle=62)
    assert said(me, seen(1, LOSS, wait=RANKS)) == [
        "rank 0 has not moved for 62 s: forward pass, waiting for records of layer data, iteration 7; "
        "no other rank is missing"
    ]


def test_a_node_that_was_never_heard_of_is_named() -> None:
    unknown = Observation(1, "far", (0,) * 7, NOW)
    assert said(WAITING, unknown)[1] == "rank 1 on far: unknown, no record has arrived from its node"


def test_a_report_on_many_ranks_is_short() -> None:
    lines = said(WAITING, *(seen(rank, BACKWARD, 1) for rank in range(1, 100)))
    assert len(lines) == MOST_LINES + 2 and lines[-1] == f"and {99 - MOST_LINES} more ranks"


def test_a_record_says_where_a_rank_waits_and_then_what_it_did_before() -> None:
    record, layers = RankRecord(), Named()
    record.begin(3)
    record.at(BACKWARD, 1)
    with pytest.raises(ValueError), record.waiting(RANKS):
        place = layers.place(unpacked(record.row))
        assert place == "backward pass of layer conv1, waiting for the other ranks, iteration 3"
        raise ValueError
    assert layers.place(unpacked(record.row)) == "backward pass of layer conv1, iteration 3"


def test_a_rank_whose_program_has_ended_stays_so_while_it_waits_for_the_others() -> None:
    record, layers = RankRecord(), Named()
    record.begin(3)
    with record.waiting(RANKS):
        record.end()
        for _ in range(2):
            with record.waiting(RANKS):
                assert layers.place(unpacked(record.row)) == "set-up, at the end of its program, iteration 3"
    assert unpacked(record.row)[WAIT] == END


class Watched(list):
    """A row that is read between any two stores."""

    def __init__(self, look):
        self.look = look

    def __setitem__(self, part, value):
        super().__setitem__(part, value)
        self.look(self)


def test_a_row_is_read_whole_at_any_time_also_where_nets_have_other_numbers_of_layers() -> None:
    layers, record = Named(), RankRecord()
    layers.names = [["data", "loss"], ["data", "ip1", "accuracy"]]
    layers.reading = [[True, False], [True, False, False]]
    seen: list[str] = []
    record.move(Watched(lambda row: seen.append(layers.place(unpacked(row)))))  # type: ignore[arg-type]
    record.begin(4)
    record.at(FORWARD, 1)
    with record.waiting(RANKS):
        record.begin(4, 1)
    record.at(TEST, 2)
    record.begin(5)
    record.at(BACKWARD, 1)
    allowed = {
        "set-up, iteration 0", "set-up, iteration 4", "forward pass of layer loss, iteration 4",
        "forward pass of layer loss, waiting for the other ranks, iteration 4", "forward pass, iteration 4",
        "test net #0, layer accuracy, iteration 4", "test", "backward pass of layer loss, iteration 5",
    }  # fmt: skip
    assert set(seen) == allowed


def test_what_a_rank_began_anew_is_never_seen_with_the_time_of_what_it_did_before() -> None:
    record = RankRecord()
    record.begin(4)
    old, since = record.row[WHAT_WORD], record.row[SINCE_WORD]
    seen: list[tuple[bool, bool]] = []
    record.move(Watched(lambda row: seen.append((row[WHAT_WORD] != old, row[SINCE_WORD] > since))))  # type: ignore
    record.at(FORWARD, 1)
    assert seen == [(False, False), (False, True), (True, True)]


def test_a_word_holds_all_fields_of_a_row() -> None:
    for fields in product((0, 7, 2**31 - 1), (0, 1000), (SET_UP, SNAPSHOT), (-1, 0, 60000), (0, SUMS)):
        assert unpacked([packed(*fields), NOW, S]) == (*fields, NOW, S)


def left(*ranks: Observation) -> str:
    """Return what a watch says of the ranks of its job, of which it is the first."""
    watch = Heartbeats.__new__(Heartbeats)
    watch.rank, watch.seconds, watch.layers, watch.rows = 0, PATIENCE, Named(), [memoryview(b"")] * len(ranks)
    watch.seen = lambda rank: ranks[rank]  # type: ignore[method-assign]
    return watch._left()


ENDED = seen(1, UPDATE, wait=END, silent=200, idle=200)


def test_a_rank_that_has_ended_ends_the_job_once_all_others_wait_for_ranks() -> None:
    said = "rank 1 on host1 has ended while rank 0 waits for it: update, at the end of its program, iteration 7"
    assert left(WAITING, ENDED) == left(WAITING, ENDED, seen(2, LOSS, wait=RANKS)) == said
    assert left(WAITING, seen(1, LOSS, wait=RANKS)) == ""


@pytest.mark.parametrize(
    "third",
    [
        seen(2, UPDATE, idle=90),  # in a callback, which rank 0 may wait for
        seen(2, BACKWARD, 1),
        seen(2, FORWARD, 0),  # its reader is slow
        seen(2, LOSS, wait=RANKS, idle=3),  # it was busy until now
        seen(2, LOSS, wait=RANKS, silent=40),  # what it does now is not known
        Observation(2, "host2", (0,) * 7, NOW),
    ],
    ids=["callback", "computes", "reads", "has moved", "silent", "unknown"],
)
def test_a_rank_that_has_ended_ends_no_job_in_which_another_may_go_on(third: Observation) -> None:
    assert left(WAITING, ENDED, third) == ""


def test_a_rank_that_waits_for_its_own_reader_ends_no_job() -> None:
    assert left(seen(0, FORWARD, 0), ENDED) == ""


def test_times_of_a_node_with_another_clock_become_ours() -> None:
    token = os.urandom(TOKEN_BYTES)
    fields = (7, 0, BACKWARD, 1, 0), (8, 0, LOSS, -1, RANKS)
    rows = [(packed(*fields[0]), 40 * S, 45 * S), (packed(*fields[1]), 20 * S, 50 * S)]
    received = dict(unpack(token, pack(token, rows, [0, 1], 50 * S), NOW))
    assert received.keys() == {0, 1}
    assert unpacked(received[0]) == (*fields[0], NOW - 10 * S, NOW - 5 * S)
    assert unpacked(received[1]) == (*fields[1], NOW - 30 * S, NOW)


def test_a_datagram_has_the_records_of_all_instances() -> None:
    token = os.urandom(TOKEN_BYTES)
    first, second = (7, 0, BACKWARD, 1, 0), (7, 0, BACKWARD, -1, INSTANCES)
    row = (packed(*first), 40 * S, 45 * S, packed(*second), 30 * S, 0)
    [(rank, received)] = unpack(token, pack(token, {3: row}, [3], 50 * S), NOW, len(row))  # type: ignore[arg-type]
    assert rank == 3
    assert threads(received) == [(*first, NOW - 10 * S, NOW - 5 * S), (*second, NOW - 20 * S, NOW - 50 * S)]


def test_other_nodes_are_told_at_once_that_the_program_has_ended() -> None:
    watch = Heartbeats(World(MPI.COMM_SELF), MPI.COMM_SELF, [], PATIENCE)
    watch.world.watch.remove(watch)  # a look would read from the socket too, and wait there
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there, socket.socket(type=socket.SOCK_DGRAM) as here:
        there.bind(("127.0.0.1", 0))
        there.settimeout(900)  # a datagram arrives a while after it was sent
        watch.datagrams._sent = time.monotonic()  # no other record is due
        address, port = there.getsockname()
        watch.datagrams._socket, watch.datagrams._peers = here, [Peer([address], {1: port})]
        watch.rows.append(watch.rows[0])
        watch.note_end()
        told = [unpack(watch.datagrams._token, there.recv(1 << 16), NOW, 2 * len(WORDS)) for _ in range(LAST)]
    assert [(rank, threads(row)[0][WAIT]) for [(rank, row)] in told] == [(0, END)] * LAST
    watch.close()


def test_all_other_ranks_looks_are_counted_since_the_last_time() -> None:
    watch = Heartbeats.__new__(Heartbeats)
    watch.rank, watch.local, watch._known = 0, [0, 1], [0] * 3
    for looks, ran in (((1, 1, 0), {1: 1}), ((5, 4, 2), {1: 3}), ((5, 4, 4), {1: 0, 2: 2})):
        watch.rows = [memoryview(array("q", (0, 0, 0, packed(one, 0, 0, -1, 0), 0, 0))) for one in looks]
        assert watch._ran_since() == ran


def test_a_watch_counts_its_looks_once_in_a_quarter_of_the_stall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, counts = Heartbeats.__new__(Heartbeats), []
    watch.rank, watch.rows, watch._every = 0, [memoryview(bytearray(2 * NBYTES)).cast("q")], PATIENCE / 4
    watch._counted = watch._looks = 0
    for seconds in (0, 1, 14, 15, 16, 29, 30):
        clock = SimpleNamespace(monotonic_ns=lambda now=NOW + seconds * S: now)
        monkeypatch.setattr(heartbeats, "time", clock)
        watch._beat()
        counts.append(unpacked(watch.rows[0][-len(WORDS) :])[0])
    assert counts == [1, 1, 1, 2, 2, 2, 3]


def test_what_is_not_this_jobs_datagram_is_refused() -> None:
    token = os.urandom(TOKEN_BYTES)
    datagram = pack(token, [(0,) * 3], [0], NOW)
    changed = bytearray(datagram)
    changed[DIGEST_BYTES] ^= 1
    for foreign in (
        b"",
        datagram[:-1],
        datagram + b"x",
        datagram[:DIGEST_BYTES],
        bytes(changed),
        pack(os.urandom(TOKEN_BYTES), [(0,) * 3], [0], NOW),
    ):
        with pytest.raises(ForeignError):
            unpack(token, foreign, NOW)
    assert token not in datagram  # who hears one can't make another


def test_a_datagram_goes_to_two_ranks_of_a_node_that_run_and_to_the_address_that_was_heard_from() -> None:
    peer = Peer(["10.0.0.1", "10.1.0.1"], {8: 58, 9: 59, 10: 60, 11: 61})
    every = peer.places(lambda rank: True, PATIENCE)
    assert every == [("10.0.0.1", 58), ("10.1.0.1", 58), ("10.0.0.1", 59), ("10.1.0.1", 59)]
    peer.hear("10.1.0.1")
    assert peer.places(lambda rank: rank != 8, PATIENCE) == [("10.1.0.1", 59), ("10.1.0.1", 60)]
    assert peer.places(lambda rank: rank == 11, PATIENCE) == [("10.1.0.1", 61), ("10.1.0.1", 58)]
    assert len(peer.places(lambda rank: False, -1)) == 4  # that address is silent now


def test_a_datagram_is_taken_for_ranks_elsewhere_alone_and_where_it_fits() -> None:
    datagrams = Datagrams(MPI.COMM_SELF, Group.uniform(1), 1, fits=lambda row: row[0] != 5)
    datagrams._peer_of = dict.fromkeys((1, 2), Peer([], {}))
    rows = [memoryview(bytearray(NBYTES)).cast("q") for _ in range(3)]
    for rank, what in ((0, 7), (3, 7), (-1, 7), (1, 5), (2, 7)):
        sent = {rank: (what, NOW, NOW)}
        datagrams._store(pack(datagrams._token, sent, [rank], NOW), rows, "")  # type: ignore[arg-type]
    assert [row[0] for row in rows] == [0, 0, 7]
    assert datagrams.refused == 4


def test_a_record_that_no_rank_of_this_job_can_have_does_not_fit() -> None:
    layers = Named()
    assert layers.has((7, 1, TEST, 2, RANKS, NOW, NOW)) and layers.has((7, 0, LOSS, -1, 0, NOW, NOW))
    for row in ((7, 2, TEST, 0, 0), (7, 1, TEST, 3, 0), (7, 0, LOSS, 0, END + 1)):
        assert not layers.has((*row, NOW, NOW))


@pytest.mark.parametrize(("net", "layer"), [(0, 3), (2, 0)], ids=["a layer more", "a net more"])
def test_a_record_of_a_solver_with_other_nets_has_no_layers_name(net: int, layer: int) -> None:
    """It is the record of a process: a second solver that watches over nothing writes to it too."""
    one, layers = seen(1, FORWARD, layer, net=net), Named()
    assert not layers.is_reading(one.row) and not layers.is_computing(one.row)
    assert said(WAITING, one) == [
        UNMOVED + "missing:", "rank 1 on host1: last seen in forward pass, iteration 7, 70 s ago"
    ]  # fmt: skip


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(tmp_path: Path, seconds: float) -> None:
    nets.write_images(tmp_path / "db", 12)
    with pytest.raises(ScaffeError, match=rf"stall_seconds must be 0 \(off\) or more, got {seconds:g}"):
        Solver(nets.solver_with(nets.tower(tmp_path / "db")), watching=Watching(stall_seconds=seconds))
