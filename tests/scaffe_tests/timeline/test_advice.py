"""Advice follows from the numbers: for each cause a trace that has it, and the remedy that fits."""

import pytest
import traces
from traces import message, span, trace, wait

from scaffe.timeline.advice import advice, lines
from scaffe.timeline.overlap import summarise

EVEN = [span("iteration", "iteration 0", 0, 100), span("forward", "conv1", 0, 40), span("backward", "conv1", 40, 80)]


def advise(*spans, buckets=None, **run):
    return advice(summarise(trace([*EVEN, *spans], EVEN, buckets=buckets, **run)))


def aggregation(*names, begin=80, each=20):
    """Return messages waited for one after the other."""
    times = [(name, begin + k * each, begin + (k + 1) * each) for k, name in enumerate(names)]
    return [make("aggregation", *time) for time in times for make in (message, wait)]


def test_nothing_to_gain():
    assert advise() == "nothing to gain from overlap: computation hardly waits for messages or records."
    assert advise(*aggregation("fc", each=4)) == advise()


@pytest.mark.parametrize("workflow", ["SC-B", "SC-OB"])
def test_aggregation_that_is_not_overlapped(workflow):
    assert advise(*aggregation("all"), workflow=workflow) == (
        f"aggregation is exposed for 10 ms an iteration, since {workflow} does not overlap it: try --workflow SC-OBR."
    )


@pytest.mark.parametrize(("workflow", "remedy"), [("SC-B", "SC-OBR, or SC-OB"), ("SC-OB", "SC-OBR, which starts it")])
def test_propagation_that_could_overlap_more(workflow, remedy):
    waited = message("propagation", "fc", 80, 100), wait("propagation", "fc", 80, 100)
    text = advise(*waited, workflow=workflow)
    assert text.startswith("propagation is exposed for 10 ms an iteration")
    assert f"try --workflow {remedy}" in text


def test_messages_that_take_longer_than_computing():
    text = advise(message("aggregation", "fc", 5, 99), wait("aggregation", "fc", 80, 99))
    assert "takes 94 ms, more than the 80 ms of forward and backward that could hide it" in text


def test_one_message():
    assert "all in one message" in advise(*aggregation("fc"), buckets={"fc": 8 << 20})


def test_messages_that_the_computing_thread_handles():
    text = advise(message("aggregation", "fc", 40, 100), wait("aggregation", "between layers", 80, 100))
    assert text.endswith("most of it handling messages between layers: try --drive helper.")


def test_a_bucket_of_several_layers_is_halved():
    text = advise(*aggregation("conv1 to fc"), buckets={"conv1 to fc": 9 << 20, "fc2": 8})
    assert text.endswith("most of it behind conv1 to fc (9M): try --bucket-bytes 4M.")


def test_a_layers_own_bucket_is_not_halved():
    text = advise(*aggregation("fc"))
    assert "most of it behind fc (8M), a layer's own: try --reduce auto" in text


def test_many_small_messages():
    names = [f"conv{k}" for k in range(10)]
    text = advise(*aggregation(*names, each=2), buckets=dict.fromkeys(names, 2000))
    assert "in 10 small messages: try a larger --bucket-bytes" in text


@pytest.mark.parametrize(("drive", "other"), [("hook", "helper"), ("helper", "hook"), ("auto", "hook")])
def test_waits_without_one_cause(drive, other):
    sizes = {"conv1": 1 << 20, "conv2": 1 << 20, "fc": 1 << 20}
    text = advise(*aggregation(*sizes, each=5), buckets=sizes, drive=drive)
    assert f"spread over 3 buckets: try --drive {other}" in text


def test_a_slow_rank_comes_first():
    slow = [span("iteration", "iteration 0", 0, 100), span("forward", "conv1", 0, 99)]
    text = advice(summarise(trace([*EVEN, *aggregation("fc")], slow, EVEN)))
    assert text.startswith("rank 1 on node1 takes 24% longer than the others, which wait for it")


def test_a_slow_rank_is_not_blamed_for_more_than_it_costs():
    slow = [span("iteration", "iteration 0", 0, 100), span("forward", "conv1", 0, 60)]
    fast = [
        span("iteration", "iteration 0", 0, 100),
        span("forward", "conv1", 0, 50),
        *aggregation("fc", each=40, begin=60),
    ]
    assert advice(summarise(trace(slow, fast, fast))).startswith("aggregation is exposed for 26.7 ms an iteration")


def test_ranks_that_take_turns_at_being_slow():
    assert advise(wait("loss", "loss", 80, 95)).startswith("ranks wait 7.5 ms an iteration for each other's loss")


@pytest.mark.parametrize(("kind", "cause"), [("read", "reading and decoding take"), ("transform", "transforming them")])
def test_slow_readers(kind, cause):
    spans = [*EVEN, span(kind, "data", 80, 100, "reader data"), wait("read", "data", 80, 100)]
    text = advice(summarise(trace(spans, spans)))
    assert text.startswith("computation waits 20 ms an iteration (20%) for records, and " + cause)


def test_what_is_printed():
    told = list(lines(summarise(trace(traces.root(), traces.root()))))
    assert told[0] == "2 rank(s), 1 iteration(s), 100 ms each (median)"
    words = {line.split()[0]: line.split() for line in told[2:9]}
    assert words["aggregation"][1:8] == ["40", "ms", "8", "ms", "32", "ms", "80%"]
    assert words["propagation"][1:8] == ["10", "ms", "5", "ms", "5", "ms", "50%"]
    assert words["backward"][1:] == ["30", "ms"]
    assert told[9].split()[:3] == ["loss", "2", "ms"]
    assert told[10] == "Slowest: rank 0 on node0, 54 ms an iteration of its own, 0% more than the others' median"
    assert told[11] == "Most awaited: fc (8M), aggregation, 8 ms an iteration"
    assert told[12].startswith("Advice: aggregation is exposed for 8 ms")


def test_a_rank_alone_has_no_messages():
    told = list(lines(summarise(trace(EVEN))))
    assert [line.split() for line in told if line.startswith(("prop", "aggr"))] == [
        ["propagation", "-"],
        ["aggregation", "-"],
    ]
    assert told[-1].startswith("Advice: nothing to gain")
    assert not any(line.startswith(("Slowest", "Most")) for line in told)
