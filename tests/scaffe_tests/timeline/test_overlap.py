"""What is read out of a trace: hand-made ones with known answers, and intervals against counting."""

import pytest
import traces
from hypothesis import given
from hypothesis import strategies as st
from traces import message, span, trace, wait

from scaffe.errors import TimelineError
from scaffe.timeline.overlap import intersection, iterations, length, summarise, union

INTERVALS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda pair: (pair[0], sum(pair))), max_size=8
)


def covered(intervals):
    return {second for begin, end in intervals for second in range(begin, end)}


@given(INTERVALS, INTERVALS)
def test_intervals_cover_what_counting_says(some, others):
    assert length(union(some)) == len(covered(some))
    assert covered(intersection(some, others)) == covered(some) & covered(others)
    assert length(intersection(some, others)) == len(covered(some) & covered(others))


@given(INTERVALS)
def test_a_union_is_in_order_and_apart(intervals):
    joined = union(intervals)
    assert all(end < begin for (_, end), (begin, _) in zip(joined, joined[1:], strict=False))


def in_ms(seconds):
    return {key: pytest.approx(value * traces.MS) for key, value in seconds.items()}


def test_an_iterations_costs():
    [costs] = iterations(trace(traces.root()).ranks[0]).values()
    busy = dict(read=8, transform=4, forward=20, propagation=10, backward=30, gather=0, aggregation=40, update=7)
    assert costs.busy == in_ms(busy)
    assert costs.exposed == in_ms(dict(read=3, transform=1, propagation=5, aggregation=8))
    assert costs.waits == in_ms({("propagation", "conv1"): 5, ("aggregation", "fc"): 8})
    assert costs.loss == pytest.approx(2 * traces.MS)
    assert costs.own == pytest.approx((20 + 30 + 3 + 1) * traces.MS)


def test_of_several_instances_the_means_count():
    spans = [
        span("iteration", "iteration 0", 0, 20),
        message("propagation", "fc", 0, 6),
        wait("propagation", "fc", 0, 2, "instance 0"),
        wait("propagation", "fc", 0, 6, "instance 10"),
        span("read", "data", 0, 1, "instance 0, reader data"),
        span("read", "data", 0, 4, "instance 10, reader data"),
        wait("read", "data", 0, 3, "instance 10"),
        span("forward", "fc", 2, 7, "instance 0"),
        span("forward", "fc", 6, 9, "instance 10"),
        wait("instances", "instances", 7, 9, "instance 0"),
        span("gather", "fc", 9, 10, "instance 0"),
        span("gather", "fc", 9, 14, "instance 10"),
        wait("loss", "loss", 6, 8),  # while instance 10 computes, and instance 0 for half of it
        wait("loss", "loss", 16, 18),
    ]
    [costs] = iterations(trace(spans).ranks[0]).values()
    busy = dict(read=2.5, transform=0, forward=4, propagation=6, backward=0, gather=3, aggregation=0, update=0)
    assert costs.busy == in_ms(busy)
    assert costs.exposed == in_ms(dict(read=1.5, transform=0, propagation=4, aggregation=0))
    assert costs.waits == in_ms({("propagation", "fc"): 4})
    assert (costs.total, costs.loss, costs.instances) == pytest.approx((0.020, 0.0025, 0.001))


def test_waiting_while_no_such_message_is_under_way_is_not_for_them():
    spans = [
        span("iteration", "iteration 0", 0, 10),
        message("aggregation", "fc", 2, 5),
        wait("aggregation", "fc", 1, 9),
    ]
    [costs] = iterations(trace(spans).ranks[0]).values()
    assert costs.exposed["aggregation"] == pytest.approx(0.003)


def test_a_message_under_way_over_the_end_counts_in_both_iterations_and_not_between():
    spans = [span("iteration", "iteration 0", 0, 10), span("iteration", "iteration 1", 15, 30)]
    first, second = iterations(trace([*spans, message("propagation", "fc", 8, 17)]).ranks[0]).values()
    assert (first.busy["propagation"], second.busy["propagation"]) == (pytest.approx(0.002), pytest.approx(0.002))


def test_a_summary_takes_medians_over_iterations():
    odd = [span("iteration", "iteration 2", 900, 1900), wait("aggregation", "fc", 900, 1900)]
    told = summarise(trace([*traces.root(), *traces.root(200, 1), *odd]))
    assert told.names == ["iteration 0", "iteration 1", "iteration 2"]
    assert told.total == pytest.approx(0.1)
    assert told.phases["aggregation"].exposed == pytest.approx(0.008)
    assert told.phases["aggregation"].hidden == pytest.approx(0.032)


def test_a_summary_takes_means_over_ranks_and_names_the_worst():
    slow = [
        span("iteration", "iteration 0", 0, 100),
        span("forward", "conv1", 0, 80),
        message("aggregation", "fc", 80, 100),
        wait("aggregation", "fc", 80, 98),
    ]
    told = summarise(trace(traces.root(), slow, [span("iteration", "iteration 0", 0, 70)]))
    assert told.total == pytest.approx(0.09)
    aggregation = told.phases["aggregation"]
    assert aggregation.exposed == pytest.approx((0.008 + 0.018) / 3)
    assert aggregation.busy == pytest.approx((0.040 + 0.020) / 2)
    assert (aggregation.worst_rank, aggregation.worst_exposed) == (1, pytest.approx(0.018))
    assert told.slowest == 1
    assert told.lag == pytest.approx(0.080 / ((0.054 + 0) / 2) - 1)
    assert told.phases["update"].busy == pytest.approx(0.007)


def test_only_iterations_that_all_ranks_have_count():
    told = summarise(trace([*traces.root(), *traces.root(200, 1)], traces.root(200, 1)))
    assert told.names == ["iteration 1"]
    with pytest.raises(TimelineError, match="no whole iteration in common"):
        summarise(trace(traces.root(), traces.root(200, 1)))
