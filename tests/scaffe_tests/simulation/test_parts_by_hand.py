"""The parts of a simulated iteration, each against numbers counted by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from collectives.model import cost
from collectives.model.clusters import Cluster
from collectives.schedules.registry import CollectiveTime
from scaffe import Net
from scaffe.context import TRAIN
from scaffe.errors import ScaffeError
from scaffe.monitor.spans import BACKWARD, FORWARD
from scaffe.parallel.run import Run
from scaffe.simulation import find_cluster, simulate_iteration
from scaffe.simulation.closed_forms import ClosedForms
from scaffe.simulation.estimate import _lanes, estimate
from scaffe.simulation.iteration import build
from scaffe.simulation.layer_times import LayerTimes, of_device, of_profile
from scaffe.simulation.rank import bucket_bytes, small_message
from scaffe.training.replay import Profile

TWO_PRODUCTS = """
layer {
  name: "data" type: "DummyData" top: "x" top: "y"
  dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 dim: 7 } }
}
layer { name: "ip1" type: "InnerProduct" bottom: "x" top: "ip1" inner_product_param { num_output: 5 } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 7 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip2" bottom: "y" top: "loss" }
"""
FAST = 1e30


@pytest.fixture
def products(tmp_path: Path) -> Net:
    (tmp_path / "net.prototxt").write_text(TWO_PRODUCTS)
    return Net(tmp_path / "net.prototxt", phase=TRAIN)


@cache
def lenet() -> Net:
    return build("lenet", 16)


def test_a_device_does_the_operations_of_both_gradients_where_both_are_needed(products: Net) -> None:
    """No gradients of the data are needed, so the first layer's backward pass has one product, the second's two."""
    times = of_device(products, find_cluster("cluster-a").with_(flops=1.0, memory=FAST, launch=0.0))
    assert times.forward == pytest.approx([0, 2 * 2 * 3 * 5, 2 * 2 * 5 * 7, 0], abs=1e-9)
    assert times.backward == pytest.approx([0, 2 * 2 * 3 * 5, 2 * 2 * 2 * 5 * 7, 0], abs=1e-9)


def test_a_device_moves_blobs_weights_and_gradients(products: Net) -> None:
    """A backward pass reads and writes the weights' gradients, and reads the weights; an update moves 5 arrays."""
    times = of_device(products, find_cluster("cluster-a").with_(flops=FAST, memory=4.0, launch=0.0))
    first, second = 3 * 5 + 5, 5 * 7 + 7
    assert times.forward == pytest.approx([0, 6 + 10 + first, 10 + 14 + second, 14 + 14 + 1])
    assert times.backward[:3] == pytest.approx([0, 6 + 10 + 3 * first, 10 + 14 + 10 + 3 * second])
    assert times.update == 5
    slow = of_device(products, find_cluster("cluster-a").with_(flops=FAST, memory=FAST, launch=0.5))
    assert slow.forward == pytest.approx([0, 0.5, 0.5, 0.5])  # readers need no device


def test_a_profile_of_another_batch_counts_in_proportion(products: Net) -> None:
    seconds = {"data": (0.0, 0.0), "ip1": (1.0, 2.0), "ip2": (3.0, 4.0), "loss": (0.5, 0.25)}
    times = of_profile(products, Profile(seconds, update=62.0, batch=1))
    assert times.forward == [0, 2, 6, 1] and times.backward == [0, 4, 8, 0.5]
    assert times.update == pytest.approx(62 / (3 * 5 + 5 + 5 * 7 + 7))
    assert of_profile(products, Profile(seconds)).forward == [0, 1, 3, 0.5]  # it does not say its batch


def test_an_iteration_that_takes_no_time_is_an_error() -> None:
    times = LayerTimes([0.0] * len(lenet().layers), [0.0] * len(lenet().layers), 0.0)
    with pytest.raises(ScaffeError, match="an iteration takes no time: all times of its layers and messages are 0"):
        simulate_iteration(lenet(), 1, "cluster-a", times=times)


def test_a_small_message_doubles_within_nodes_then_between_them() -> None:
    cluster = find_cluster("cluster-a").with_(devices=4, alpha_in=1.0, alpha=10.0)
    assert [small_message(cluster, ranks) for ranks in (1, 3, 4, 5, 10)] == [0, 2, 2, 12, 22]


def test_buckets_of_auto_suit_the_node_s_links_where_all_ranks_are_on_one() -> None:
    """Where a message costs no latency the smallest bucket is best."""
    links = find_cluster("cluster-a").with_(devices=4, alpha_in=0.0, alpha=1e-3).links
    sizes = [bucket_bytes(Run(bucket_bytes="auto"), 1 << 24, links, ranks) for ranks in (3, 4, 5)]
    assert sizes[:2] == [1, 1] and sizes[2] > 1 << 16


def test_links_and_reading_are_those_of_the_file() -> None:
    links = find_cluster("taihulight").links
    assert (links.nodes_per_supernode, links.oversubscription, links.nics) == (256, 4, 1)
    assert (links.alpha, links.beta, links.gamma) == (5e-6, 1 / 12e9, 1 / 9.3e9)
    assert (find_cluster("ndr").links.nics, find_cluster("cluster-a").links.nodes_per_supernode) == (8, None)
    disks = find_cluster("cluster-a").with_(devices=2, read=100.0, storage=300.0)
    assert [disks.reading(ranks) for ranks in (1, 2, 8)] == [100, 50, 300 / 8]


def test_several_iterations_have_the_mean_of_one() -> None:
    one, three = (
        simulate_iteration(lenet(), 2, "cluster-a", Run("SC-OBR", reduce="chain"), iterations=n) for n in (1, 3)
    )
    assert three.seconds == pytest.approx(one.seconds, rel=0.01)
    assert three.aggregation.busy == pytest.approx(one.aggregation.busy, rel=0.01)
    assert one.rate == pytest.approx(2 * 16 / one.seconds)


def test_the_first_iteration_that_counts_is_in_the_steady_state() -> None:
    """On more than two nodes the order of broadcasts is decided before, and one more iteration fills the pipeline."""
    slow, run = find_cluster("cluster-a").with_(devices=1, rate=2e7), Run("SC-OBR", reduce="chain", bucket_bytes="256K")
    one, three = (simulate_iteration(lenet(), 4, slow, run, iterations=n).seconds for n in (1, 3))
    assert three == pytest.approx(one, rel=1e-9)


def test_the_worst_rank_waits_longer_than_the_mean() -> None:
    slow = simulate_iteration(lenet(), 4, "cluster-a", Run("SC-B", reduce="chain"), factors=[1, 1, 3])
    assert slow.aggregation.worst > 1.1 * slow.aggregation.exposed


def test_the_workflow_of_auto_is_the_fastest() -> None:
    cluster = find_cluster("cluster-a").with_(devices=1, rate=2e7)
    seconds = {
        name: simulate_iteration(lenet(), 4, cluster, Run(name, reduce="chain")).seconds
        for name in ("auto", "SC-B", "SC-OB", "SC-OBR")
    }
    assert seconds["auto"] == min(seconds.values()) < max(seconds.values())


@pytest.mark.parametrize("sync", ["reduce-bcast", "allreduce"])
def test_latencies_alone_are_one_for_each_message_and_one_for_the_loss(sync: str) -> None:
    fast = find_cluster("tianhe").with_(alpha=1.0, rate=FAST, add=FAST)
    times = LayerTimes([0.0] * len(lenet().layers), [0.0] * len(lenet().layers), 0.0)
    found = estimate(lenet(), fast, Run("SC-B", sync, reduce="auto"), times, ClosedForms(fast.links, 2))
    assert found.seconds == pytest.approx(3)


@pytest.mark.parametrize("forward", [0.0, 0.5])
@pytest.mark.parametrize("nbytes", ["0", "1M", "inf"])
def test_a_long_backward_pass_hides_all_but_the_first_bucket_s_sum_and_broadcast(nbytes: str, forward: float) -> None:
    """Its gradients are the last; the next forward pass begins with its parameters. A message has no latency."""
    even = find_cluster("cluster-a").with_(devices=1, alpha=0.0, rate=1e8, add=FAST)
    times = LayerTimes(*([each * bool(bottom) for bottom in lenet().bottoms] for each in (forward, 0.5)), 0.0)
    run = Run("SC-OBR", reduce="chain", bucket_bytes=nbytes)
    found = estimate(lenet(), even, run, times, ClosedForms(even.links, 2, ("chain",)))
    driven = simulate_iteration(lenet(), 2, even, run, times=times)
    first = next(iter(driven.buckets.values()))
    for one in (found, driven):
        assert one.seconds - times.computing == pytest.approx(2 * first / 1e8, rel=1e-3)


@pytest.mark.parametrize(("workflow", "updated"), [("SC-B", 431_080), ("SC-OBR", 20 * 25 + 20)])
def test_an_update_is_at_the_end_but_sc_obr_s_of_earlier_buckets(workflow: str, updated: int) -> None:
    """With a bucket for each layer only conv1's update comes after the backward pass. Messages take no time."""
    even = find_cluster("cluster-a").with_(devices=1, alpha=0.0, rate=FAST, add=FAST)
    times = LayerTimes(*([[0.5 * bool(bottom) for bottom in lenet().bottoms]] * 2), 1e-6)
    run = Run(workflow, reduce="chain", bucket_bytes="0")
    found = estimate(lenet(), even, run, times, ClosedForms(even.links, 2, ("chain",)))
    driven = simulate_iteration(lenet(), 2, even, run, times=times)
    for one in (found, driven):
        assert one.seconds - times.computing == pytest.approx(1e-6 * updated, rel=0.03)  # buckets are padded


def test_driven_ranks_agree_on_statistics_too(products: Net, tmp_path: Path) -> None:
    """Latencies alone: a broadcast, a reduce, the loss, and the mean of BatchNorm's statistics where there are any."""
    norm = 'layer { name: "bn" type: "BatchNorm" bottom: "ip1" top: "ip1" }\nlayer { name: "ip2"'
    (tmp_path / "norm.prototxt").write_text(TWO_PRODUCTS.replace('layer { name: "ip2"', norm))
    fast = find_cluster("tianhe").with_(alpha=1.0, rate=FAST, add=FAST)
    for net, seconds in ((products, 3), (Net(tmp_path / "norm.prototxt", phase=TRAIN), 4)):
        times = LayerTimes([0.0] * len(net.layers), [0.0] * len(net.layers), 0.0)
        assert simulate_iteration(net, 2, fast, Run(reduce="chain"), times=times).seconds == pytest.approx(seconds)


def test_two_stages_are_under_way_and_share_the_busiest_port() -> None:
    cost = CollectiveTime(seconds=10.0, busy=2.0, algorithm="chain", chunk=1)
    assert _lanes([0.0, 0.0, 0.0, 30.0], [cost] * 4) == [10, 12, 20, 40]


def test_a_chain_whose_additions_are_slower_than_its_messages() -> None:
    """Two ranks, four chunks of 1 byte: messages arrive each 2 s, additions take 3 s each."""
    links = Cluster("slow", 4, 1, alpha_in=0, beta_in=0, alpha=1, beta=1, gamma=3)
    assert cost("reduce", "chain", links, 2, 4, [1]).seconds == 2 + 4 * 3
    assert cost("bcast", "chain", links, 2, 4, [1]).seconds == 4 * 2
    assert cost("allreduce", "chain", links, 2, 4, [4]).seconds == (1 + 4 + 3 * 4) + (
        1 + 4
    )  # one chunk, there and back
    assert cost("bcast", "chain", links, 4, 4, [1]).seconds == (4 + 4 - 2) * 2


def test_a_chain_within_a_node_takes_the_node_s_links() -> None:
    """Four ranks, four chunks of 1 byte, 3 s each: P + n - 2 rounds; a fifth rank is on another node."""
    links = Cluster("node", 4, 4, alpha_in=2, beta_in=1, alpha=100, beta=0, gamma=0)
    assert cost("reduce", "chain", links, 4, 4, [1]).seconds == (4 + 4 - 2) * 3
    assert cost("reduce", "chain", links, 5, 4, [1]).seconds >= 4 * 100


def test_layers_are_computed_backward_from_the_last() -> None:
    one = simulate_iteration(lenet(), 2, "cluster-a", Run("SC-B", reduce="chain"), shown=1)
    names = [layer.name for layer in lenet().layers]
    for kind, order in ((FORWARD, names), (BACKWARD, names[::-1])):
        found = [span.name for span in sorted(one.spans[0], key=lambda span: span.begin) if span.kind == kind]
        assert found == [name for name in order if name in found] and len(found) > 5
