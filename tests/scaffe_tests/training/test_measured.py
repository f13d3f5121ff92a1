"""What ranks measured becomes samples: shares and means by hand."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from scaffe.monitor import numbers
from scaffe.monitor.numbers import Sample
from scaffe.training.measured import LARGEST, Counters, Interval, of_outputs, of_ranks, of_speed


def values(samples: Iterable[Sample]) -> dict[tuple[str, ...], float]:
    return {(one.metric.name, *one.labels.values()): one.value for one in samples}


def test_shares_and_work_of_two_ranks() -> None:
    ranks = [Interval(10, (1, 0.5), (4, 2), 0.5, 2), Interval(10, (3, 5), (4, 2), 0, 1)]
    found = values(of_ranks(ranks, 2))
    assert found["rank_work_seconds", "0"] == 4 and found["rank_work_seconds", "1"] == 1
    assert (found["slowest_rank",], found["slowest_rank_work_seconds",], found["work_seconds",]) == (0, 4, 2.5)
    assert found["communication_exposed_ratio", "propagation"] == pytest.approx(4 / 8)
    assert found["communication_exposed_ratio", "aggregation"] == pytest.approx(2.5 / 4)  # at most the busy time
    assert found["communication_hidden_ratio", "aggregation"] == pytest.approx(1.5 / 4)
    assert found["rank_exposed_seconds", "aggregation", "1"] == 2.5
    assert found["reading_wait_ratio",] == pytest.approx(0.15) and found["reading_worst_wait_ratio",] == 0.2


def test_counters_return_what_was_added_since_and_new_objects_count_from_0() -> None:
    class Meter:
        def __init__(self, waited: float, busy: float):
            self.waited, self.exposed, self.busy = waited, busy, busy

    counters, first = Counters(), Meter(1, 0)
    meters = Meter(0, 4), Meter(0, 2)
    workflow: Any = SimpleNamespace(
        propagate=SimpleNamespace(meter=meters[0]), aggregate=SimpleNamespace(meter=meters[1])
    )
    losses: Any = first
    assert counters.since([workflow], losses, [], 9) == Interval(9, (4, 2), (4, 2), 1, None)
    meters[0].busy, first.waited = 5, 3
    assert counters.since([workflow], losses, [], 1) == Interval(1, (0, 0), (1, 0), 2, None)
    other: Any = Meter(0.5, 0)
    assert counters.since([workflow], other, [], 1) == Interval(1, (0, 0), (0, 0), 0.5, None)


def test_one_rank_waits_for_records_alone() -> None:
    assert set(values(of_ranks([Interval(10, (0, 0), (0, 0), 0, 2)], 2))) == {
        ("reading_wait_ratio",), ("reading_worst_wait_ratio",), ("rank_reading_wait_ratio", "0")
    }  # fmt: skip
    assert not values(of_ranks([Interval(10, (0, 0), (0, 0), 0, None)], 2))


def test_speed_is_that_of_all_iterations() -> None:
    assert values(of_speed(5.0, 10, 640)) == {("iteration_seconds",): 0.5, ("images_per_second",): 128}
    assert values(of_speed(5.0, 10, 0)) == {("iteration_seconds",): 0.5}


def test_outputs_of_several_values_are_numbered_and_large_ones_left_out() -> None:
    outputs = {"one": np.array(2.0), "two": np.array([[3.0], [4.0]]), "many": np.zeros(LARGEST + 1)}
    assert values(of_outputs(numbers.TEST_OUTPUT, outputs, test_net="1")) == {
        ("test_output", "one", "1"): 2, ("test_output", "two[0]", "1"): 3, ("test_output", "two[1]", "1"): 4
    }  # fmt: skip
