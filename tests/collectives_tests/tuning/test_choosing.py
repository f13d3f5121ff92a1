from __future__ import annotations

from itertools import count

import pytest

from collectives.tuning import Shape, Table
from collectives.tuning.choosing import LIBRARY, Candidate, algorithms, candidates, decide, rows, search

CHAIN, FINE, CB = Candidate("chain", 65536), Candidate("chain", 16384), Candidate("cb-8", 65536)
EIGHT = Shape(8, 1, "tcp")
MEGABYTE = 1 << 20


class Clock:
    """Says what it is told, and counts; the k-th timing of a candidate takes `noise(k)` times as long."""

    def __init__(self, seconds, noise=lambda k: 1.0):
        self.seconds, self.noise, self.calls = seconds, noise, dict.fromkeys(seconds, 0)

    def __call__(self, candidate):
        self.calls[candidate] += 1
        return self.seconds[candidate] * self.noise(self.calls[candidate])


def test_what_is_far_from_the_best_is_timed_once():
    clock = Clock({LIBRARY: 3.0, CHAIN: 1.0, FINE: 1.4, CB: 1.6})
    found = search([CHAIN, FINE, CB], clock, lambda: 1.0, rounds=5)
    assert found == {LIBRARY: 3.0, CHAIN: 1.0, FINE: 1.4}
    assert clock.calls == {LIBRARY: 5, CHAIN: 5, FINE: 5, CB: 1}


def test_the_median_forgives_a_disturbed_round():
    clock = Clock({LIBRARY: 3.0, CHAIN: 1.0}, noise=lambda k: 100.0 if k == 3 else 1.0)
    assert search([CHAIN], clock, lambda: 1.0, rounds=5) == {LIBRARY: 3.0, CHAIN: 1.0}


def test_without_time_left_the_library_and_one_candidate_are_timed_once():
    clock = Clock({LIBRARY: 1.0, CHAIN: 1.0, CB: 0.1})
    assert search([CHAIN, CB], clock, lambda: 0.0) == {LIBRARY: 1.0, CHAIN: 1.0}
    assert clock.calls == {LIBRARY: 1, CHAIN: 1, CB: 0}


def test_rounds_end_with_the_time():
    left = count(4, -1)
    clock = Clock({LIBRARY: 1.0, CHAIN: 1.0, CB: 1.0})
    search([CHAIN, CB], clock, lambda: next(left), rounds=50)
    assert clock.calls == {LIBRARY: 4, CHAIN: 4, CB: 4}  # one question before CB, then one a round: 4, 3, 2, 1, 0


@pytest.mark.parametrize(
    ("ours", "nbytes", "taken"),
    [
        (0.94, MEGABYTE, CHAIN),
        (0.96, MEGABYTE, LIBRARY),  # a tie is the library's
        (1.2, MEGABYTE, LIBRARY),
        (0.94, 4096, CHAIN),
    ],
)
def test_the_library_stays_unless_much_is_gained(ours, nbytes, taken):
    assert decide({LIBRARY: 1.0, CHAIN: ours}, nbytes) == taken


def test_a_small_message_must_gain_more_than_five_microseconds():
    assert decide({LIBRARY: 10e-6, CHAIN: 6e-6}, 4096) == LIBRARY
    assert decide({LIBRARY: 10e-6, CHAIN: 4e-6}, 4096) == CHAIN
    assert decide({LIBRARY: 10e-6, CHAIN: 6e-6}, 65536) == CHAIN


def test_the_choice_of_the_size_before_stays_while_it_is_nearly_the_best():
    assert decide({LIBRARY: 3.0, CHAIN: 1.0, FINE: 1.04}, MEGABYTE, before=FINE) == FINE
    assert decide({LIBRARY: 3.0, CHAIN: 1.0, FINE: 1.1}, MEGABYTE, before=FINE) == CHAIN
    assert decide({LIBRARY: 1.05, CHAIN: 0.98, FINE: 1.01}, MEGABYTE, before=FINE) == CHAIN


def test_rows_stand_where_the_choice_changes():
    seconds = {
        1 << 10: {LIBRARY: 1.0, CHAIN: 2.0},
        1 << 12: {LIBRARY: 1.0, CHAIN: 0.5, CB: 0.75},
        1 << 14: {LIBRARY: 1.0, CHAIN: 0.5, CB: 0.49},
        1 << 16: {LIBRARY: 1.0, CB: 0.25},
        1 << 18: {LIBRARY: 1.0},
    }
    made = rows("reduce", EIGHT, True, seconds, "by hand")
    assert [(row.from_bytes, row.algorithm) for row in made] == [
        (0, "mpi"),
        (1 << 12, "chain"),
        (1 << 16, "cb-8"),
        (1 << 18, "mpi"),
    ]
    assert (made[1].seconds, made[1].library_seconds, made[1].next_best) == (0.5, 1.0, "cb-8 in 65536 bytes")
    assert made[3].next_best == ""


def test_below_the_least_size_measured_nothing_is_claimed():
    made = rows("reduce", EIGHT, True, {MEGABYTE: {LIBRARY: 1.0, CHAIN: 0.5}}, "by hand")
    table = Table(made, "t")
    assert table.choose("reduce", EIGHT, True, MEGABYTE - 1).algorithm == "mpi"
    assert table.choose("reduce", EIGHT, True, MEGABYTE).algorithm == "chain"


def test_candidates_suit_the_shape():
    assert algorithms("reduce", Shape(1, 2), reaches=True) == ["slices", "chain"]
    assert "slices" not in algorithms("reduce", Shape(1, 4), reaches=False)
    assert not any(name.startswith("leaders") for name in algorithms("allreduce", EIGHT, reaches=True))
    assert "cb-8" not in algorithms("reduce", EIGHT, reaches=True)
    assert {"leaders-chain", "leaders-mpi", "cb-8"} <= {*algorithms("bcast", Shape(8, 2, "tcp"), reaches=True)}
    assert {"leaders-ring", "ring", "halving"} <= {*algorithms("allreduce", Shape(8, 2, "tcp"), reaches=True)}


def test_chunks_that_would_send_a_message_whole_are_tried_once():
    names, chunks = ["slices", "leaders-mpi", "chain"], [16384, 65536]
    at_least = [("slices", 0), ("leaders-mpi", 0), ("chain", 16384)]
    assert candidates(names, chunks, MEGABYTE) == [*at_least, ("chain", 65536)]
    assert candidates(names, chunks, 1024) == at_least
