"""Estimates against sums by hand: three buckets of four products, of which the middle one has two layers.

Messages have no latency and one chunk, so that a chain of P ranks takes P - 1 times a bucket's message, and its busiest
rank is busy for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from scaffe import Net
from scaffe.context import TRAIN
from scaffe.parallel.buckets import make_buckets
from scaffe.parallel.run import Run
from scaffe.simulation import find_cluster
from scaffe.simulation.closed_forms import ClosedForms
from scaffe.simulation.estimate import estimate
from scaffe.simulation.iteration import build
from scaffe.simulation.layer_times import LayerTimes, of_device

PRODUCT = (
    'layer {{ name: "ip{0}" type: "InnerProduct" bottom: "{1}" top: "ip{0}" '
    "inner_product_param {{ num_output: {2} }} }}"
)
DATA = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 8 } } }'
OUTPUTS = 8, 64, 8, 500
BUCKETS = "18000"  # bytes: the first bucket has an eighth of them, the second a fourth, the third is one layer
RATE = 1e4
UPDATE = 0.01
FORWARD = [0, 0.1, 0.2, 0.3, 0.4]  # of the data and of the four products


@pytest.fixture
def net(tmp_path: Path) -> Net:
    bottoms = "x", *(f"ip{k}" for k in range(3))
    products = [PRODUCT.format(k, *each) for k, each in enumerate(zip(bottoms, OUTPUTS, strict=True))]
    (tmp_path / "net.prototxt").write_text("\n".join([DATA, *products]))
    return Net(tmp_path / "net.prototxt", phase=TRAIN)


def seconds(net: Net, workflow: str, backward: Sequence[float], ranks: int = 2, update: float = 0.0) -> float:
    cluster = find_cluster("tianhe").with_(alpha=0.0, alpha_in=0.0, rate=RATE, add=1e30, launch=0.0)
    run = Run(workflow, reduce="auto", bucket_bytes=BUCKETS)
    times = LayerTimes(FORWARD, backward, update)
    return estimate(net, cluster, run, times, ClosedForms(cluster.links, ranks, ("chain",))).seconds


def messages(net: Net) -> list[float]:
    """Return the seconds of the buckets' messages."""
    buckets = make_buckets(net, float(BUCKETS))
    assert [one.layers for one in buckets] == [(1,), (2, 3), (4,)]
    return [4 * (one.part.stop - one.part.start) / RATE for one in buckets]


def test_a_bucket_is_summed_once_all_its_layers_are_computed_and_the_pass_ends_with_the_data(net: Net) -> None:
    """The sums of ip1 and ip2 begin after ip1; those of ip0, which follow them, after the data's pass.

    The forward pass waits for ip0's broadcast alone: the sum before it comes last.
    """
    first, middle, _ = messages(net)
    for data in (0.0, 5.0):
        begin = max(10 + 20 + 30 + middle, 10 + 20 + 30 + 0.1 + data)
        found = seconds(net, "SC-OBR", [data, 0.1, 30, 20, 10], update=UPDATE)
        assert found == pytest.approx(first + sum(FORWARD) + begin + first + UPDATE * first * RATE / 4)


def test_without_early_broadcasts_layers_wait_for_theirs_in_the_order_of_the_layers(net: Net) -> None:
    first, middle, last = messages(net)
    clock = first + 0.1
    clock = max(clock, first + middle) + 0.2 + 0.3
    clock = max(clock, first + middle + last) + 0.4
    whole = first + middle + last
    found = seconds(net, "SC-OB", [0, 1, 2, 3, 4], update=UPDATE)
    assert found == pytest.approx(clock + 10 + whole + UPDATE * whole * RATE / 4)


def test_without_overlap_all_is_added(net: Net) -> None:
    whole = sum(messages(net))
    found = seconds(net, "SC-B", [0, 1, 2, 3, 4], update=UPDATE)
    assert found == pytest.approx(sum(FORWARD) + 10 + 2 * whole + UPDATE * whole * RATE / 4)


def test_as_many_broadcasts_as_the_backward_pass_has_room_for_hide_behind_it(net: Net) -> None:
    """On 4 ranks two sums in flight take 1.5 messages each; ip3 is four fifths of all bytes."""
    first, middle, last = messages(net)
    room = 1.9 * 1.5 * (first + middle + last)
    backward = [0, 0.1, 0.1, 0.1, room - 0.3]  # ip3's sums are complete last
    clock = max(3 * first + 0.1, first + 3 * middle) + 0.2 + 0.3 + 0.4
    begins = clock + room - 0.3
    ends = begins + 3 * last, begins + last + 3 * middle
    found = seconds(net, "SC-OBR", backward, ranks=4)
    assert found == pytest.approx(max(*ends, max(begins + last + middle, ends[0]) + 3 * first))


def test_without_room_all_broadcasts_follow(net: Net) -> None:
    first, middle, last = messages(net)
    clock = max(3 * first + 0.1, first + 3 * middle) + 0.2 + 0.3
    clock = max(clock, max(first + middle, 3 * first) + 3 * last) + 0.4
    ends = clock + 3 * last, clock + last + 3 * middle
    found = seconds(net, "SC-OBR", [0.0] * 5, ranks=4)
    assert found == pytest.approx(max(*ends, max(clock + last + middle, ends[0]) + 3 * first))


def test_large_layers_are_summed_in_pieces_where_these_are_updated_early() -> None:
    lenet, cluster = build("lenet", 4), find_cluster("ndr")
    for workflow, is_cut in (("SC-OBR", True), ("SC-OB", False)):
        run = Run(workflow, reduce="auto", bucket_bytes="256K")
        found = estimate(lenet, cluster, run, of_device(lenet, cluster), ClosedForms(cluster.links, 16))
        assert (max(n for what, n in found.chosen if what == "bcast") <= 256 << 10) == is_cut
