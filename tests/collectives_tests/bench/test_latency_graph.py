"""Graphs of calls: a mark for each call, or for the average of several, between the least and the most."""

import numpy as np

from collectives.bench.latency_graph import COLUMNS, ROWS, LatencyGraph, text


def test_each_call_has_a_mark_at_its_height() -> None:
    title, *rows = text(LatencyGraph("4 bytes", np.array([2.0, 9.0, 2.0, 5.0]))).splitlines()
    assert title == "# 4 bytes, 4 calls" and len(rows) == ROWS
    assert rows[0] == "#           9.00 | *" and rows[-1] == "#           2.00 |* *"
    assert [row.count("*") for row in rows] == [1, 0, 0, 0, 1, 0, 0, 2]


def test_many_calls_are_averaged_and_equal_ones_lie_at_the_bottom() -> None:
    *others, last = text(LatencyGraph("", np.full(10 * COLUMNS + 3, 7.0))).splitlines()
    assert last == "#           7.00 |" + COLUMNS * "*"
    assert not any("*" in one for one in others)
