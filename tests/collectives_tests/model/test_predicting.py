from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.execution.execute import InFlight
from collectives.model import best_row, main, predict, scaffe_row, tuned_row
from collectives.model.clusters import CLUSTERS, KESCH, NVLINK_NDR, TAIHULIGHT, Cluster
from collectives.model.predicting import bound
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.schedule import Schedule
from tests.support.equations import (
    allgather_time,
    allreduce_time,
    binomial_time,
    chain_binomial_time,
    chain_time,
    new_allgather_time,
    new_reduce_scatter_time,
    reduce_scatter_time,
)

EVEN = Cluster("even", nodes=64, ranks_per_node=1, alpha_in=0, beta_in=0, alpha=20e-6, beta=1e-9, gamma=0)
ONE_BY_ONE = InFlight(receives=1, sends=4)  # the next chunk is sent when the last one has been added, as t(c) supposes
UNLIMITED = InFlight(receives=10**9, sends=10**9)
MEGABYTE = 1 << 20


def t(n: int, cluster: Cluster) -> float:
    """The time to reduce n bytes between two ranks."""
    return cluster.alpha + n * (cluster.beta + cluster.gamma)


def schedule(name: str, ranks: int, n: int, chunk: int, **options: int) -> Schedule:
    return make_schedule("reduce", name, ranks, n // 4, chunk=chunk // 4, **options)


@pytest.mark.parametrize("gamma", [0.0, 0.3e-9])
@pytest.mark.parametrize("ranks", [2, 8, 13, 64])
def test_the_model_agrees_with_equation_1_of_scaffe(ranks: int, gamma: float) -> None:
    cluster = replace(EVEN, gamma=gamma)
    time = predict(schedule("binomial", ranks, MEGABYTE, MEGABYTE), cluster, in_flight=ONE_BY_ONE)
    assert time == pytest.approx(binomial_time(ranks, t(MEGABYTE, cluster)), rel=1e-9)


@pytest.mark.parametrize(("gamma", "in_flight"), [(0.0, None), (0.0, InFlight()), (0.3e-9, ONE_BY_ONE)])
@pytest.mark.parametrize(("ranks", "chunks"), [(2, 1), (8, 8), (20, 4), (5, 64)])
def test_the_model_agrees_with_equation_2_of_scaffe(
    ranks: int, chunks: int, gamma: float, in_flight: InFlight | None
) -> None:
    cluster = replace(EVEN, gamma=gamma)
    chunk = MEGABYTE // chunks
    time = predict(schedule("chain", ranks, MEGABYTE, chunk), cluster, in_flight=in_flight)
    assert time == pytest.approx(chain_time(ranks, chunks, t(chunk, cluster)), rel=1e-9)


def test_the_model_agrees_with_scaffes_chains_below_a_binomial_tree() -> None:
    time = predict(schedule("cb-8:levels", 64, MEGABYTE, MEGABYTE // 16), EVEN)
    assert time == pytest.approx(chain_binomial_time(64, 8, 16, t(MEGABYTE, EVEN), t(MEGABYTE // 16, EVEN)), rel=1e-9)


def test_a_tree_over_a_part_of_a_chain_more_has_a_round_more() -> None:
    whole, chunk = 3.0, 0.5
    assert chain_binomial_time(64, 8, 16, whole, chunk) == 22 * chunk + 3 * whole
    assert chain_binomial_time(65, 8, 16, whole, chunk) == 22 * chunk + 4 * whole


def test_bounds_are_the_bytes_of_the_slowest_link() -> None:
    times = {"beta_in": 1e-10, "ranks_per_node": 4}
    for ranks, beta in ((1, 0.0), (4, 1e-10), (5, EVEN.beta)):
        assert bound("bcast", replace(EVEN, **times), ranks, 1000) == pytest.approx(1000 * beta)


@pytest.mark.parametrize(("op", "chunk"), [("reduce", 200), ("reduce", 2000), ("bcast", 200), ("allreduce", 2000)])
@pytest.mark.parametrize("name", ["chain", "binomial", "cb-8", "cc-8", "ccb-4", "kary-3"])
def test_the_short_way_gives_what_a_replay_of_every_event_gives(op: str, name: str, chunk: int) -> None:
    cluster = replace(NVLINK_NDR, nics=64)
    long = make_schedule(op, name, 45, 2000, chunk=chunk, depth=1000)
    assert predict(long, cluster) == pytest.approx(predict(long, cluster, in_flight=UNLIMITED), rel=1e-9)


@pytest.mark.parametrize("name", ["chain", "cb-8", "binomial"])
def test_a_reduce_never_beats_its_bound(name: str) -> None:
    for cluster in CLUSTERS.values():
        assert predict(schedule(name, 64, MEGABYTE, MEGABYTE // 8), cluster) > MEGABYTE * cluster.beta


def test_messages_that_share_a_nodes_adapter_share_its_speed() -> None:
    cluster = replace(EVEN, ranks_per_node=4, alpha_in=1e-6, beta_in=1e-10, alpha=0)
    exchange = make_schedule("allreduce", "halving", 8, MEGABYTE, chunk=MEGABYTE)
    across, within = 2 * MEGABYTE * cluster.beta, MEGABYTE * 1.5 * cluster.beta_in
    assert predict(exchange, cluster) == pytest.approx(2 * (4 * across + within + 2e-6), rel=1e-9)
    assert predict(exchange, replace(cluster, nics=4)) == pytest.approx(2 * (across + within + 2e-6), rel=1e-9)


@pytest.mark.parametrize(("p", "q"), [(64, 16), (16, 16), (256, 64)])
def test_the_model_agrees_with_equations_2_to_6_of_swcaffe(p: int, q: int) -> None:
    n = 4 * MEGABYTE
    cluster = replace(TAIHULIGHT, nodes_per_supernode=q)
    terms = {"p": p, "q": q, "n": n, "alpha": cluster.alpha, "beta1": cluster.beta, "beta2": 4 * cluster.beta}
    old, new = halving("allreduce", cluster, p, n)
    assert old == pytest.approx(
        allreduce_time(reduce_scatter_time, allgather_time, gamma=cluster.gamma, **terms), rel=1e-9
    )
    assert new == pytest.approx(
        allreduce_time(new_reduce_scatter_time, new_allgather_time, gamma=cluster.gamma, **terms), rel=1e-9
    )


def halving(op: str, cluster: Cluster, p: int, n: int) -> tuple[float, float]:
    """The times of halving with ranks numbered supernode by supernode, and round-robin."""
    group = cluster.group(p)
    old, new = (
        make_schedule(op, "halving", p, n // 4, chunk=n // 4, order=order) for order in (None, group.round_robin())
    )
    return predict(old, cluster), predict(new, cluster)


@pytest.mark.parametrize("megabytes", [4, 16, 64, 256])
def test_scaffes_order_of_algorithms_holds_at_160_ranks(megabytes: int) -> None:
    """S-Caffe, figures 11 and 12: chains below a binomial tree beat a flat chain and a flat binomial tree."""
    elements = megabytes * MEGABYTE // 4
    chain, binomial, both = (scaffe_row(name, KESCH, 160, elements).seconds for name in ("chain", "binomial", "cb-8"))
    assert both < binomial < chain


@pytest.mark.parametrize("kilobytes", [1, 64, 1024, 8 << 10, 64 << 10, 256 << 10])
def test_tuned_is_faster_than_any_of_scaffes_own_at_160_ranks(kilobytes: int) -> None:
    elements = kilobytes * 1024 // 4
    some = ("chain", "binomial", "cb-8", "cc-8", "cc-16")  # those that are quickly timed; more can only be faster
    tuned = tuned_row("reduce", KESCH, 160, elements, algorithms=some).seconds
    theirs = {name: scaffe_row(name, KESCH, 160, elements).seconds for name in ("chain", "binomial", "cb-8", "cc-8")}
    assert tuned < theirs["cb-8"] and tuned <= min(theirs.values())


@pytest.mark.parametrize("megabytes", [16, 64])
def test_levels_that_overlap_beat_the_same_levels_in_turn(megabytes: int) -> None:
    elements = megabytes * MEGABYTE // 4
    for name in ("cb-8", "cc-8"):
        ours = best_row("reduce", name, KESCH, 160, elements)
        assert ours and ours.seconds < scaffe_row(name, KESCH, 160, elements).seconds


def test_a_hundred_thousand_ranks_are_timed() -> None:
    chain = predict(make_schedule("reduce", "chain", 100_000, 8, chunk=2), EVEN)
    assert chain == pytest.approx(chain_time(100_000, 4, t(8, EVEN)), rel=1e-9)


def test_the_table_names_algorithms_chunks_and_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["allreduce", "--ranks", "8", "--bytes", "1M", "--cluster", "taihulight"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("allreduce of 1048576 bytes over 8 ranks of taihulight: links allow 0.15")
    rows = {line[:22].strip(): [float(number) for number in line[22:57].split()] for line in lines[2:10]}
    assert {"tuned", "chain", "ring", "halving", "halving, renumbered"} <= set(rows)
    assert lines[2].endswith(f"  {lines[3][:22].strip()}") and rows["tuned"] == rows[lines[3][:22].strip()]
    times = [time for _, time, _ in rows.values()]
    assert times == sorted(times) and all(ratio > 1 for _, _, ratio in rows.values())
    assert lines[-1].startswith("swCaffe, section II.B")


def test_tuned_is_the_best_of_ours_and_stands_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "--ranks", "24", "--bytes", "256K"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:-2]
    best = next(line for line in lines[1:] if not line.startswith("S-Caffe's"))
    assert lines[0][:22].strip() == "tuned" and lines[0][22:57] == best[22:57]
    assert lines[0].split()[-1] == best.split()[0]


def test_the_table_says_what_it_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["allreduce", "--ranks", "600", "--bytes", "1K", "--algorithms", "ring,binomial"]) == 0
    assert "left out, too many messages to simulate: ring\n" in capsys.readouterr().out


def test_wrong_options_end_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "--ranks", "8", "--cluster", "summit"]) == 1
    assert capsys.readouterr().err.startswith("error: unknown cluster 'summit'; known are kesch, cluster-b")
    assert main(["reduce", "--ranks", "0"]) == 1
    assert capsys.readouterr().err == "error: --ranks is 0; it must be at least 1\n"
    with pytest.raises(SystemExit):
        main(["reduce", "--ranks", "8", "--bytes", "64Q"])
    assert "'64Q' is not a number of bytes" in capsys.readouterr().err
