"""Closed forms against events, and estimates against driven ranks and sums by hand."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from collectives.errors import AlgorithmError
from collectives.model import cost
from collectives.model.predicting import predict
from collectives.schedules.algorithms import make_schedule, order_for
from scaffe import Net
from scaffe.errors import ScaffeError
from scaffe.parallel.run import Run
from scaffe.simulation import estimate as estimates
from scaffe.simulation import find_cluster, simulate_iteration
from scaffe.simulation.closed_forms import TREES, ClosedForms
from scaffe.simulation.estimate import Estimate, best, estimate
from scaffe.simulation.iteration import build
from scaffe.simulation.layer_times import LayerTimes, of_device

MIB = 1 << 20


built = cache(build)


def net() -> Net:
    return built("googlenet", 8)


def events(what: str, name: str, cluster: str, ranks: int, nbytes: int, chunk: int = MIB) -> float:
    links = find_cluster(cluster).links
    group = links.group(ranks)
    order = order_for(name, group)
    return predict(make_schedule(what, name, ranks, nbytes // 4, chunk=chunk // 4, order=order), links, group=group)


@pytest.mark.parametrize("cluster", ["cluster-a", "ndr"])
@pytest.mark.parametrize("name", TREES)
def test_trees_of_1024_ranks(cluster: str, name: str) -> None:
    links = find_cluster(cluster).links
    for what in ("reduce", "bcast"):
        found = cost(what, name, links, 1024, 64 * MIB, [MIB]).seconds
        assert found == pytest.approx(events(what, name, cluster, 1024, 64 * MIB), rel=0.1), what


@pytest.mark.parametrize("cluster", ["tianhe", "taihulight", "ndr"])
@pytest.mark.parametrize("what", ["reduce", "bcast"])
def test_two_trees_of_256_ranks(cluster: str, what: str) -> None:
    found = cost(what, "two-tree", find_cluster(cluster).links, 256, 16 * MIB, [MIB])
    assert found.seconds == pytest.approx(events(what, "two-tree", cluster, 256, 16 * MIB), rel=0.1)


def test_chains_of_a_node() -> None:
    found = cost("reduce", "cb-16", find_cluster("cluster-a").links, 1024, 64 * MIB, [MIB]).seconds
    assert found == pytest.approx(events("reduce", "cb-16", "cluster-a", 1024, 64 * MIB), rel=0.1)


def test_leaders_by_hand() -> None:
    """Two nodes of four ranks, 800 bytes: a byte takes 1 s in a node, 10 s between nodes, and 2 s to add."""
    slow = find_cluster("8280").with_(devices=4, leaders=4, alpha=0, alpha_in=0, rate=0.1, rate_in=1, add=0.5)
    one, each = (ClosedForms(slow.links, 8, ("leaders-binomial",), leaders) for leaders in (1, 4))
    assert one.cost("bcast", 800).seconds == pytest.approx(8000 + 2 * 800)
    assert one.cost("reduce", 800).seconds == pytest.approx(2 * (800 + 1600) + 8000 + 1600)
    between = 200 * 40  # slices share the adapter
    assert each.cost("bcast", 800).seconds == pytest.approx(2 * 600 + between)
    assert each.cost("reduce", 800).seconds == pytest.approx(2 * 600 + 1200 + between + 400)
    halving = ClosedForms(slow.links, 8, ("leaders-halving",), 4).cost("allreduce", 800)
    assert halving.seconds == pytest.approx(2 * 600 + 1200 + 200 * 40 + 100 * 2)
    assert list(ClosedForms(slow.links, 4, ("leaders-ring",), 4).costs("allreduce", 800)) == []  # one node


@pytest.mark.parametrize("name", ["flat", "kary-2", "ccb-8-4", "bb-4", "cb-8:levels"])
def test_what_has_no_closed_form_is_counted_from_its_steps(name: str) -> None:
    """They were taken for a binomial tree, or for cb-8: `flat` ten times too fast."""
    found = ClosedForms(find_cluster("cluster-a").links, 32, (name,)).cost("reduce", MIB)
    assert found.algorithm == name and found.seconds == events("reduce", name, "cluster-a", 32, MIB, found.chunk)


def test_what_has_no_closed_form_is_not_counted_over_any_number_of_ranks() -> None:
    forms = ClosedForms(find_cluster("cluster-a").links, 10**9, ("flat",))
    with pytest.raises(AlgorithmError, match="'flat' has no closed form, and too many steps over 1000000000 ranks"):
        forms.cost("reduce", MIB)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("binominal", "unknown algorithm 'binominal'; known are chain"),
        ("leaders-binominal", "unknown algorithm 'binominal'; known are chain"),
        ("leaders-leaders-ring", "unknown algorithm 'leaders-ring'"),
        ("mpi", "unknown algorithm 'mpi'"),
        ("", "unknown algorithm ''"),
        ("cb", "'cb' needs a chain size"),
        ("cb-0", "'cb-0': chain size 0; it must be at least 1"),
        ("ccb-8-4-2", "'ccb-8-4-2' needs one chain size or 2"),
        ("chain-3", "'chain-3': 'chain' takes no number"),
    ],
)
def test_names_that_no_algorithm_has_are_errors(name: str, said: str) -> None:
    links = find_cluster("cluster-a").links
    with pytest.raises(AlgorithmError, match=said):
        ClosedForms(links, 16, ("chain", name))


def test_an_algorithm_does_only_its_own_collectives() -> None:
    links = find_cluster("cluster-a").links
    for what, name in (("bcast", "cb-8:levels"), ("reduce", "ring")):
        with pytest.raises(ScaffeError, match=f"no {what} over 16 ranks by any of: {name}"):
            ClosedForms(links, 16, (name,)).cost(what, MIB)


@pytest.mark.parametrize("cluster", ["cluster-a", "taihulight", "ndr"])
@pytest.mark.parametrize(
    ("name", "ranks", "within"),
    [("ring", 64, 0.05), ("halving", 256, 0.02), ("halving", 160, 0.2)],  # 160: groups of 5 lie across nodes
)
def test_exchanges(cluster: str, name: str, ranks: int, within: float) -> None:
    one = cost("allreduce", name, find_cluster(cluster).links, ranks, 4 * MIB, [4 * MIB])
    assert one.seconds == pytest.approx(events("allreduce", name, cluster, ranks, 4 * MIB, one.chunk), rel=within)


@pytest.mark.parametrize("chunk", [MIB >> 2, MIB, 4 * MIB])
@pytest.mark.parametrize("cluster", ["8280", "taihulight"])
def test_a_ring_adds_a_chunk_while_the_next_one_comes(cluster: str, chunk: int) -> None:
    """Blocks of 4 MiB; the additions of taihulight take longer than its messages."""
    links = find_cluster(cluster).links
    for what in ("reduce_scatter", "allgather"):
        found = cost(what, "ring", links, 8, 32 * MIB, [chunk]).seconds
        assert found == pytest.approx(events(what, "ring", cluster, 8, 32 * MIB, chunk), rel=0.02), what


@pytest.mark.parametrize("cluster", ["8280", "taihulight", "ndr"])
def test_halving_adds_a_chunk_while_the_next_one_comes(cluster: str) -> None:
    one = cost("allreduce", "halving", find_cluster(cluster).links, 64, 64 * MIB, [4 * MIB])
    assert one.seconds == pytest.approx(events("allreduce", "halving", cluster, 64, 64 * MIB, one.chunk), rel=0.02)


@pytest.mark.parametrize(("ranks", "supernode"), [(32, 2), (32, 8), (8, 4)])
def test_halving_sends_the_bytes_of_equations_5_and_6(ranks: int, supernode: int) -> None:
    """Without latency and additions: p - p / q parts at full rate, p / q - 1 at a quarter, there and back."""
    numbers = {"supernode": supernode, "alpha": 0.0, "rate": 1.0, "add": 1e30}
    links = find_cluster("taihulight").with_(**numbers).links
    supernodes = ranks // supernode
    parts = ranks - supernodes + 4 * (supernodes - 1)
    assert cost("allreduce", "halving", links, ranks, MIB, [4 * MIB]).seconds == pytest.approx(2 * MIB * parts / ranks)


def test_halving_without_a_power_of_two_has_all_rounds_and_the_bytes_of_the_equations() -> None:
    """Latencies: log2 P rounds each way. Bytes: 25 supernodes of 40 nodes are crossed by 24 of 1,024 parts."""
    for devices, in_node in ((6, 2), (12, 3), (28, 4)):
        numbers = {"devices": devices, "alpha": 10.0, "alpha_in": 1.0, "rate": 1e30, "rate_in": 1e30, "add": 1e30}
        links = find_cluster("cluster-a").with_(**numbers).links
        seconds = 2 * (10.0 * (10 - in_node) + in_node)
        assert cost("allreduce", "halving", links, 1024, MIB, [4 * MIB]).seconds == pytest.approx(seconds)
    links = find_cluster("taihulight").with_(supernode=40, alpha=0.0, rate=1.0, add=1e30).links
    parts = 1024 - 25 + 4 * 24
    assert cost("allreduce", "halving", links, 1024, MIB, [4 * MIB]).seconds == pytest.approx(2 * MIB * parts / 1024)


@pytest.mark.parametrize("ranks", [16, 64, 256])
@pytest.mark.parametrize("devices", [6, 12])
def test_halving_of_short_messages_over_nodes_without_a_power_of_two(devices: int, ranks: int) -> None:
    links = find_cluster("cluster-a").with_(devices=devices).links
    found, group = cost("allreduce", "halving", links, ranks, MIB >> 6, [4 * MIB]), links.group(ranks)
    schedule = make_schedule("allreduce", "halving", ranks, MIB >> 8, chunk=MIB, order=order_for("halving", group))
    assert found.seconds == pytest.approx(predict(schedule, links, group=group), rel=0.1)


def test_six_ranks_of_a_node_halve_in_it() -> None:
    """In two groups of 3, then in three of 1: 3/6 of the bytes each way, then twice 1/6; nothing leaves the node."""
    links = find_cluster("cluster-a").with_(devices=8, alpha=1.0, rate=1e-3, alpha_in=0.0, rate_in=1.0, add=1e30).links
    assert cost("allreduce", "halving", links, 6, MIB, [4 * MIB]).seconds == pytest.approx(2 * MIB * 5 / 6)


@pytest.mark.parametrize(("name", "ranks"), [("halving", 7), ("ring", 8)])
def test_the_ranks_of_a_node_stay_in_it(name: str, ranks: int) -> None:
    slow = find_cluster("cluster-a").with_(devices=8, alpha=1e3, rate=1e-9)
    assert cost("allreduce", name, slow.links, ranks, MIB, [4 * MIB]).seconds < 1


def test_a_cost_is_of_a_verb_that_the_algorithm_has() -> None:
    with pytest.raises(AlgorithmError, match="reduce has no algorithm 'ring'"):
        cost("reduce", "ring", find_cluster("cluster-a").links, 4, MIB, [MIB])


def test_two_ranks_by_hand() -> None:
    """One message each way of all parameters: 1 s for a byte and no latency, nothing else."""
    slow = find_cluster("tianhe").with_(alpha=0.0, alpha_in=0.0, rate=1.0, rate_in=1.0, add=1e30, launch=0.0)
    small = build("lenet", 4)
    times = LayerTimes([0.0] * len(small.layers), [0.0] * len(small.layers), 0.0)
    forms = ClosedForms(slow.links, 2)
    both = estimate(small, slow, Run("SC-B", reduce="auto"), times, forms)
    assert both.seconds == pytest.approx(2 * small.packed.nbytes, rel=1e-4)  # less some padding
    half = estimate(small, slow, Run("SC-B", "allreduce", reduce="auto"), times, forms)
    assert half.seconds == pytest.approx(small.packed.nbytes, rel=1e-4)  # halves, there and back


@pytest.mark.parametrize(
    ("workflow", "sync", "within"),
    [
        ("SC-B", "reduce-bcast", 0.02),
        ("SC-OB", "reduce-bcast", 0.2),
        ("SC-OBR", "reduce-bcast", 0.2),
        ("SC-B", "allreduce", 0.1),
        ("SC-OBR", "allreduce", 0.2),
    ],
)
def test_estimates_are_near_driven_ranks(workflow: str, sync: str, within: float) -> None:
    run = Run(workflow, sync, reduce="auto", bucket_bytes="16M")
    cluster = find_cluster("ndr")
    times = of_device(net(), cluster)
    driven = simulate_iteration(net(), 64, cluster, run, times=times)
    found = estimate(net(), cluster, run, times, ClosedForms(cluster.links, 64))
    assert found.seconds == pytest.approx(driven.seconds, rel=within)
    assert found.computing == pytest.approx(driven.computing)


@pytest.mark.parametrize("cluster", ["cluster-a", "ndr", "tianhe"])
@pytest.mark.parametrize(("name", "batch"), [("googlenet", 2), ("googlenet", 8), ("alexnet", 16)])
def test_on_160_ranks_buckets_of_auto_are_near_the_best_fixed_ones(name: str, batch: int, cluster: str) -> None:
    described, small = find_cluster(cluster), built(name, batch)
    times, forms = of_device(small, described), ClosedForms(described.links, 160)

    def seconds(nbytes: str) -> float:
        return estimate(small, described, Run("SC-OBR", reduce="auto", bucket_bytes=nbytes), times, forms).seconds

    assert seconds("auto") <= 1.1 * min(map(seconds, ("1M", "2M", "4M", "8M", "16M", "32M")))


def test_the_best_comes_first_and_a_single_rank_computes() -> None:
    cluster = find_cluster("cluster-a")
    small = built("lenet", 8)
    times = of_device(small, cluster)
    seconds = [one.seconds for one in best(small, 100_000, cluster, times)]
    assert seconds == sorted(seconds) and seconds[0] > times.computing
    assert best(small, 1, cluster, times)[0].exposed == 0


def test_leaders_alone_are_estimated_where_there_are_several_nodes_of_several_ranks() -> None:
    run, names = Run("SC-B", reduce="auto"), ("leaders-binomial",)
    for cluster, ranks, does in (("cluster-a", 32, True), ("cluster-a", 16, False), ("taihulight", 16, False)):
        described = find_cluster(cluster)
        times = of_device(net(), described)
        if does:
            (found,) = best(net(), ranks, described, times, [run], names)
            assert {cost.algorithm for cost in found.chosen.values()} == set(names)
        else:
            with pytest.raises(ScaffeError, match=f"no bcast over {ranks} ranks by any of: leaders-binomial"):
                best(net(), ranks, described, times, [run], names)


def test_where_leaders_have_nothing_to_do_runs_are_estimated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, asked = find_cluster("taihulight"), []

    def counting(*given: Any) -> Estimate:
        asked.append(given)
        return estimate(*given)

    monkeypatch.setattr(estimates, "estimate", counting)
    assert len(best(net(), 16, cluster, of_device(net(), cluster))) == len(asked)


@pytest.mark.parametrize(
    ("workflow", "owners", "within"),
    [
        ("SC-B", "spread", 0.02),
        ("SC-B", "slices", 0.02),
        ("SC-OBR", "slices", 0.05),
        ("SC-OBR", "spread", 0.25),  # as if one rank had all messages of the root, and so too long
    ],
)
def test_estimates_of_several_owners_are_near_driven_ranks(workflow: str, owners: str, within: float) -> None:
    run = Run(workflow, reduce="auto", bucket_bytes="16M", owners=owners)
    cluster = find_cluster("ndr")
    times = of_device(net(), cluster)
    driven = simulate_iteration(net(), 64, cluster, run, times=times)
    found = estimate(net(), cluster, run, times, ClosedForms(cluster.links, 64))
    assert found.seconds == pytest.approx(driven.seconds, rel=within)
    assert found.computing == pytest.approx(driven.computing, rel=1e-3)


@pytest.mark.parametrize(("name", "ranks", "within"), [("ring", 64, 0.05), ("halving", 64, 0.1), ("halving", 256, 0.1)])
def test_halves_are_near_their_events_and_make_up_an_allreduce(name: str, ranks: int, within: float) -> None:
    whole, *halves = (
        cost(what, name, find_cluster("ndr").links, ranks, 64 * MIB, [4 * MIB]).seconds
        for what in ("allreduce", "reduce_scatter", "allgather")
    )
    assert sum(halves) == pytest.approx(whole)
    for what, seconds in zip(("reduce_scatter", "allgather"), halves, strict=True):
        assert seconds == pytest.approx(events(what, name, "ndr", ranks, 64 * MIB, 4 * MIB), rel=within), what


def test_gradients_of_half_the_bytes_take_half_the_time() -> None:
    cluster = find_cluster("taihulight")
    times = of_device(net(), cluster)
    forms = ClosedForms(cluster.links, 1024)
    whole, half = (
        estimate(net(), cluster, Run("SC-B", "allreduce", gradient_numbers=numbers), times, forms)
        for numbers in ("float32", "bf16")
    )
    spent = [one.seconds - one.computing for one in (whole, half)]
    assert spent[0] / 2 < spent[1] < 0.56 * spent[0]  # latencies stay
