"""When messages and updates of two simulated ranks begin under each drive, and iterations in closed form.

Each layer takes half a second, each message one chunk, each bucket is a layer; additions take no time.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import pytest

from scaffe import Net
from scaffe.monitor.spans import BACKWARD, FORWARD, PROPAGATION, UPDATE
from scaffe.parallel.run import Run
from scaffe.simulation import DescribedCluster, Iteration, find_cluster, simulate_iteration
from scaffe.simulation.iteration import build
from scaffe.simulation.layer_times import LayerTimes
from scaffe.simulation.rank import SimulatedEngine

ALPHA, RATE, LAYER = 2e-5, 1e9, 0.5
SHORT = 1e-7  # of an update of a parameter: together less than a layer's pass
LONG = 1e-5  # of ip1 alone more than the rest of the backward pass
DRIVES = "helper", "hook"


@cache
def net() -> Net:
    return build("lenet", 16)


def even(**numbers: float) -> DescribedCluster:
    return find_cluster("cluster-a").with_(**{"devices": 1, "alpha": ALPHA, "rate": RATE, "add": 1e30} | numbers)


def times(update: float, reading: float = 0.0) -> LayerTimes:
    """Return half a second for each pass of a layer; the data's take `reading`."""
    passes = [LAYER if bottoms else reading for bottoms in net().bottoms]
    return LayerTimes(passes, [LAYER * bool(bottoms) for bottoms in net().bottoms], update)


def simulate(workflow: str, drive: str, update: float, sync: str = "reduce-bcast", **given: object) -> Iteration:
    run = Run(workflow, sync, reduce="chain", chunk_bytes=1 << 23, bucket_bytes="0", drive=drive)
    return simulate_iteration(net(), 2, even(), run, times=times(update), shown=1, **given)  # type: ignore[arg-type]


def message(one: Iteration, *buckets: str) -> float:
    """Return the seconds of these buckets' messages, one after the other."""
    return sum(ALPHA + one.buckets[bucket] / RATE for bucket in buckets)


def update(one: Iteration, each: float, *buckets: str) -> float:
    """Return the seconds of these buckets' updates."""
    return sum(each * one.buckets[bucket] / 4 for bucket in buckets)


def spans(one: Iteration, kind: str) -> dict[str, tuple[float, float]]:
    """Return the begins and ends of the root's spans of a kind, by name."""
    return {span.name: (span.begin, span.end) for span in one.spans[0] if span.kind == kind}


def broadcasts(one: Iteration, bucket: str) -> list[tuple[float, float]]:
    """Return when each broadcast of a bucket began on the root, and when the root noticed its end."""
    found = (span for span in one.spans[0] if span.track.startswith(f"{PROPAGATION}, lane"))
    return sorted((span.begin, span.end) for span in found if span.name == bucket)


def test_with_a_helper_a_bucket_is_updated_as_soon_as_its_message_is_here() -> None:
    one = simulate("SC-OBR", "helper", SHORT)
    computed, updated = spans(one, BACKWARD), spans(one, UPDATE)
    for bucket in one.buckets:
        assert updated[bucket][0] == pytest.approx(computed[bucket][1] + message(one, bucket), abs=1e-12)
        assert updated[bucket][1] - updated[bucket][0] == pytest.approx(update(one, SHORT, bucket))
        assert broadcasts(one, bucket)[-1][0] == pytest.approx(updated[bucket][1], abs=1e-12)


def test_with_a_hook_a_bucket_is_updated_at_the_end_of_the_next_layer() -> None:
    """The last bucket of the backward pass has no next layer: it is waited for."""
    one = simulate("SC-OBR", "hook", SHORT)
    computed, updated = spans(one, BACKWARD), spans(one, UPDATE)
    ends = sorted(end for _, end in computed.values())
    first, *later = one.buckets
    for bucket in later:
        assert updated[bucket][0] == pytest.approx(ends[ends.index(computed[bucket][1]) + 1], abs=1e-12)
    assert updated[first][0] == pytest.approx(computed[first][1] + message(one, first), abs=1e-12)


def test_with_a_hook_a_message_is_noticed_at_the_end_of_the_layer_in_which_it_arrives() -> None:
    """The root waits for conv1's; conv2's and ip1's pass during conv1; then ip2's begins, and passes during pool1."""
    one = simulate("SC-OB", "hook", SHORT)
    computed = spans(one, FORWARD)
    (_, conv1), (_, conv2), (_, ip1), ip2 = (broadcasts(one, bucket)[0] for bucket in one.buckets)
    assert conv1 == pytest.approx(computed["conv1"][0], abs=1e-12)
    assert (conv2, ip1) == pytest.approx((computed["conv1"][1],) * 2, abs=1e-12)
    assert ip2 == pytest.approx((computed["conv1"][1], computed["pool1"][1]), abs=1e-12)


@pytest.mark.parametrize("sync", ["reduce-bcast", "allreduce"])
@pytest.mark.parametrize("drive", DRIVES)
def test_a_helper_hides_updates_and_a_hook_s_take_the_time_of_layers(drive: str, sync: str) -> None:
    """The first layer's sum is the last, and each rank waits for its two messages.

    With a hook both ranks update conv2 once an allreduce's second message is here: after conv1, when the first of
    conv1's is under way, which that hides.
    """
    one = simulate("SC-OBR", drive, SHORT, sync)
    first, *later = one.buckets
    shown = message(one, first) * (1 if (drive, sync) == ("hook", "allreduce") else 2)
    updates = update(one, SHORT, first, *(later if drive == "hook" else []))
    assert one.seconds == pytest.approx(one.forward + one.backward + ALPHA + shown + updates, abs=1e-9)


def test_updates_that_outlast_the_backward_pass_hold_up_the_messages_behind_them() -> None:
    """The thread that updates ip1 begins no other message meanwhile, and the iteration ends after it.

    conv1's sum passes while conv2 is updated, and conv2's broadcast while conv1 is.
    """
    one = simulate("SC-OBR", "helper", LONG)
    before = spans(one, BACKWARD)["ip1"][1] - spans(one, FORWARD)["conv1"][0]
    assert update(one, LONG, "ip1") > 4 * LAYER
    after = message(one, "ip1", "conv2", "conv1") + update(one, LONG, "ip1", "conv2", "conv1")
    assert one.seconds == pytest.approx(before + after, abs=1e-9)


def test_broadcasts_begin_with_the_iteration_and_pass_under_what_precedes_the_first_parameters() -> None:
    run = Run("SC-OB", reduce="chain", chunk_bytes=1 << 23, bucket_bytes="0", drive="helper")
    one = simulate_iteration(net(), 2, even(), run, times=times(SHORT, reading=LAYER))
    whole = ALPHA + one.nbytes / RATE
    assert one.propagation.exposed == 0 < one.propagation.busy
    assert one.seconds == pytest.approx(one.computing + ALPHA + whole, abs=1e-7)  # less some padding


@pytest.mark.parametrize("drive", DRIVES)
def test_broadcasts_arrive_in_the_order_of_the_layers_that_wait_for_them(drive: str) -> None:
    """At a slow rate each layer waits for its own message, which follows those before it; then it takes its time."""
    slow, run = 1e5, Run("SC-OB", reduce="chain", chunk_bytes=1 << 23, bucket_bytes="0", drive=drive)
    one = simulate_iteration(net(), 2, even(rate=slow), run, times=times(0.0))
    arrived = clock = 0.0
    for layer, seconds in zip(net().layers, times(0.0).forward, strict=True):
        if layer.name in one.buckets:
            arrived += ALPHA + one.buckets[layer.name] / slow
            clock = max(clock, arrived)
        clock += seconds
    assert one.seconds == pytest.approx(clock + one.backward + 2 * ALPHA + one.nbytes / slow, rel=1e-4)


def test_layers_are_cut_into_pieces_where_these_are_updated_early() -> None:
    """ip1 has 1,602,000 bytes: six pieces of 256 KB and a rest."""
    for workflow, pieces in (("SC-OBR", 7), ("SC-OB", 1)):
        run = Run(workflow, reduce="chain", bucket_bytes="256K")
        sizes = [
            nbytes
            for name, nbytes in simulate_iteration(net(), 2, even(), run).buckets.items()
            if name.startswith("ip1")
        ]
        assert len(sizes) == pieces and sum(sizes) == pytest.approx(1602000, abs=64)


def test_readers_hold_three_batches_ready() -> None:
    """A rank that comes at 10 s finds three batches, each read in 1 s; the fourth is read from then on."""
    rank = SimpleNamespace(clock=10.0, spend=lambda seconds: None)
    engine = SimulatedEngine(rank, LayerTimes([0.0], [0.0], 0.0), 1.0, 1.0, True)  # type: ignore[arg-type]
    taken = []
    for _ in range(5):
        engine.forward(None, (0,))  # type: ignore[arg-type]
        taken.append(rank.clock)
    assert taken == [10, 10, 10, 11, 12]


def test_busy_seconds_are_means_over_the_ranks_and_the_worst_is_the_longest() -> None:
    """Of a chain of three the last rank has sent after one message, the others are done after two."""
    run = Run("SC-B", reduce="chain", chunk_bytes=1 << 23)
    one = simulate_iteration(net(), 3, even(), run, times=times(0.0))
    whole = ALPHA + one.nbytes / RATE
    assert one.aggregation.busy == pytest.approx(5 / 3 * whole, rel=1e-4)  # less some padding
    assert one.aggregation.worst == pytest.approx(2 * whole, rel=1e-4)


def test_broadcasts_of_s_caffe_s_levels_take_their_tree() -> None:
    one = simulate_iteration(net(), 4, even(), Run("SC-OBR", reduce="cb-2:levels"))
    found = {(what, choice.algorithm) for (what, _), choice in one.chosen.items()}
    assert found == {("reduce", "cb-2:levels"), ("bcast", "cb-2")}
