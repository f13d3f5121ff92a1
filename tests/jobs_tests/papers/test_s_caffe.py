"""S-Caffe's models against closed forms and counts by hand, and the benchmarks that its figures run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_messages_take_the_wanted_share_of_sc_b() -> None:
    overlap = module("overlap")
    updating, talking = 0.02, 0.3
    computing = overlap.computing_of_share(0.36, updating, updating + talking)
    assert talking / (updating + talking + computing) == pytest.approx(0.36)
    with pytest.raises(ValueError, match="no share of 0.9"):
        overlap.computing_of_share(0.9, updating, updating + 0.1)


def test_a_replay_is_read_from_the_benchmark_s_table(monkeypatch: pytest.MonkeyPatch) -> None:
    replays, overlap = module("replays"), module("overlap")
    solver = SimpleNamespace(net=SimpleNamespace(packed=SimpleNamespace(nbytes=582_312)))
    given = SimpleNamespace(net="cifar10_quick", batch=1024, profile="flops:9.44317e+10", bucket_bytes="4M")
    each = {overlap.ALONE: [(100.0, 0), (80.0, 0)], "SC-B:flat": [(12345.67, 345.6), (12345.6, 345.6)]}
    rounds = {name: [overlap.Round(ms, 1.5, sums, ms - sums) for ms, sums in turns] for name, turns in each.items()}
    printed = "I1123 a line of the log\n" + overlap.table(8, given, solver, rounds)
    monkeypatch.setattr(replays.lab, "on_nodes", lambda *words: printed)
    found = replays.replayed("share:0.5", "SC-B:flat", "cifar10_quick", 1024)
    assert found["rate"] == 9.44317e10
    assert found["ms"] == {replays.ALONE: 90.0, "SC-B:flat": 12345.6}
    assert found["sums"] == {replays.ALONE: 0.0, "SC-B:flat": 345.6}
    assert found["rest"] == {replays.ALONE: 90.0, "SC-B:flat": 12000.0}


def test_a_device_computes_as_long_as_it_is_told_in_its_layers_proportions() -> None:
    replays = module("replays")
    one, two = (replays.device_times("lenet", "cluster-b", seconds) for seconds in (1.0, 2.0))
    assert (one.computing, two.computing) == pytest.approx((1, 2))
    assert two.forward == pytest.approx([2 * each for each in one.forward])


def test_a_sum_of_two_arrays_moves_three(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = module("cores")
    clock = iter(range(100))
    monkeypatch.setattr(cores.time, "perf_counter", lambda: next(clock))
    assert cores.bandwidth(1000) == pytest.approx(3e-9 * 4000)  # a second each


def test_a_chain_of_8_in_16_chunks_gains_what_equations_1_and_2_say() -> None:
    assert module("s_caffe_11").gain(8, 16) == pytest.approx(3 * 16 / 22)


def test_what_hides_is_saved_and_computing_is_fitted_where_it_is_shorter() -> None:
    figure = module("s_caffe_6")
    assert [figure.saved(t, 0.5, 0.5) for t in (0.25, 1.5, 5.0)] == pytest.approx([20, 40, 100 / 6])
    assert figure.saved(3.0, 1.5, 0.1) == pytest.approx(100 * (1 - (1.5 + 2) / 4.6))  # a third of computing is forward
    assert figure.saved(3.0, 0.1, 2.5) == pytest.approx(100 * (1 - (1 + 2.5) / 5.6))
    assert figure.fitted(20, 0.5, 0.5) == pytest.approx(0.25)
    assert figure.fitted(10, 2.0, 1.0) == pytest.approx(1 / 3)


def test_twice_the_gpus_compute_half_and_talk_as_long_as_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("s_caffe_6").FIGURE
    monkeypatch.setattr(figure, "talking", {8: (0.5, 0.5), 16: (0.6, 0.6)}.get)
    assert figure.on_16() == pytest.approx(100 * (1 - 1.2 / 1.325))  # 0.25, then 0.125 of computing
    assert figure.places() == pytest.approx([0.25, 0.125 / 1.2])


def test_a_broadcast_takes_its_bytes_and_a_reduce_its_additions_too() -> None:
    broadcast, reduce = module("s_caffe_6").FIGURE.talking(2)
    once = 20e-6 + 4 * 60_965_224 / 8e9  # two devices of a node
    assert broadcast == pytest.approx(once) and once < reduce < once + 4 * 60_965_224 / 60e9


def test_fewer_nodes_have_the_rate_of_the_others_and_twice_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("s_caffe_6")
    up: list[str] = []
    asked = []

    @contextmanager
    def cluster(nodes: str, rate: str) -> Iterator[None]:
        up.append(nodes)
        yield

    def replayed(profile: str, rows: str, net: str, batch: int, *how: str) -> dict:
        asked.append((up[-1], profile, batch))
        return {"rate": 7e9 * len(asked), "ms": {}}

    monkeypatch.setattr(figure.lab, "cluster", cluster)
    monkeypatch.setattr(figure.replays, "replayed", replayed)
    assert list(figure.FIGURE.measure()) == [figure.LESS, figure.MORE, figure.FEWER]
    shares = [profile.removeprefix("share:") for _, profile, _ in asked[:2]]
    assert list(map(float, shares)) == pytest.approx([40.6 / 113.6, 1 / 1.2], rel=1e-5)
    assert [(nodes, batch) for nodes, _, batch in asked] == [("8", 32), ("8", 32), ("4", 64)]
    assert asked[2][1] == "flops:1.4e+10"


def test_samples_are_those_of_all_devices_which_compute_64_images_each(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("s_caffe_10")
    given = []
    monkeypatch.setattr(figure.replays, "device_times", lambda net, cluster, computing: given.append(computing))
    monkeypatch.setattr(figure.replays, "net", lambda name: name)
    monkeypatch.setattr(figure, "simulate_iteration", lambda *names, times: SimpleNamespace(seconds=2.0))
    assert figure.samples(4, 100.0) == 4 * 64 / 2
    assert given == [0.64]


def test_gpus_without_an_exchange_scale_and_a_latency_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("s_caffe_9").FIGURE
    one, many = (figure.seconds(n) for n in (1, 64))
    assert one == pytest.approx(8192 * 69.2e6 / (79.25 * 4.14e9)) and many > one / 64
    monkeypatch.setitem(figure.instead, "alpha", 1.0)
    assert figure.seconds(64) > many + 1


def test_two_batches_are_read_off_where_each_gain_is_the_paper_s() -> None:
    figure = module("s_caffe_8").FIGURE
    modelled = {"128 over 16": [3.0, 3.6, 5.0, 6.0], "160 over 32": [1.0, 1.5, 2.5, 3.0]}
    assert figure.needed(modelled, "128 over 16") == pytest.approx(3.15)
    assert figure.needed(modelled, "160 over 32") == pytest.approx(5.45)


def test_what_sc_ob_saves_is_of_propagation_forward_and_backward() -> None:
    figure = module("s_caffe_13")
    rest = {figure.ALONE: 80.0, figure.SC_B: 100.0, figure.SC_OB: 85.0}
    assert figure.saved(rest) == pytest.approx(15) and figure.part_hidden(rest) == pytest.approx(0.75)
