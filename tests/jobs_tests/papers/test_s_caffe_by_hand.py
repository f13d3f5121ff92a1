"""S-Caffe's figure 10, section 6.6 and replays: phases, rates and shares that a hand can count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]

LENET = 2 * (25 * 20 * 24 * 24 + 500 * 50 * 8 * 8 + 800 * 500 + 500 * 10)  # operations of a forward pass over an image
FAST = {"alpha": 0.0, "alpha_in": 0.0, "rate": 1e30, "rate_in": 1e30, "add": 1e30}


def test_the_broadcast_hides_behind_a_third_of_computing_and_the_reduce_behind_the_rest() -> None:
    phases = module("s_caffe_6").phases
    assert phases(3.0, 1.5, 0.1) == pytest.approx(100 * (4.6 / (1.5 + 2) - 1))
    assert phases(3.0, 0.1, 2.5) == pytest.approx(100 * (5.6 / (1 + 2.5) - 1))


def test_a_broadcast_takes_its_bytes_and_a_reduce_its_additions_too() -> None:
    broadcast, reduce = module("s_caffe_6").talking(2)
    once = 20e-6 + 4 * 60_965_224 / 8e9  # two devices of a node
    assert broadcast == pytest.approx(once) and once < reduce < once + 4 * 60_965_224 / 60e9


def test_twice_the_gpus_compute_half_and_talk_as_long_as_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("s_caffe_6")
    monkeypatch.setattr(figure, "talking", {8: (0.5, 0.5), 16: (0.6, 0.6)}.get)
    gains = figure.FIGURE.model({})["gains"]
    assert gains["shorter"] == pytest.approx([20, 100 * (1.3 / 1.2 - 1)])  # 0.2, then 0.1 of computing
    assert gains["longer"] == pytest.approx([20, 100 * (3.7 / 2.5 - 1)])  # 5, then 2.5


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
    monkeypatch.setattr(figure.replays, "links", dict)
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
    assert figure.samples(4, figure.SC_OBR, 100.0) == 4 * 64 / 2
    assert given == [0.64]
    assert figure.rate(8, 64.0) == 8000
    monkeypatch.setattr(figure, "samples", lambda ranks, row, device: device)
    found = figure.FIGURE.model({})
    assert found["no copying"] == pytest.approx(79.25 / 0.6) and set(found["samples"]["SC-OBR"]) == {79.25}


def test_a_ring_that_hides_nothing_is_comparable_and_no_more() -> None:
    figure = module("s_caffe_10")
    speeds = {figure.SERVER: 3.0, figure.EARLY_RING: 2.0}
    for speed, wanted in ((0.79, False), (0.81, True), (1.19, True), (1.21, False)):
        found = {check.what: not check.by for check in figure.against("there", speeds | {figure.RING: speed})}
        assert list(found.values()).count(False) == (not wanted), speed


def test_a_replay_computes_and_updates_as_long_as_it_did_alone() -> None:
    """Nothing else takes time on fast links: three forward passes' operations for each image, then the update."""
    replays = module("replays")
    made = replays.net("lenet")
    computing = 1e3 * 3 * 4 * LENET / 1e9
    for alone, wanted in ((0.0, computing), (500.0, 500.0)):
        found = {"rate": 1e9, "ms": {replays.ALONE: alone}, "links": FAST}
        assert replays.predicted_row(found, replays.SC_B, made, 2, 4) == pytest.approx(wanted, rel=1e-4)
    assert replays.rate_of(made, 2.0) == pytest.approx(3 * LENET / 2)


def test_a_device_computes_as_long_as_it_is_told_in_its_layers_proportions() -> None:
    replays = module("replays")
    one, two = (replays.device_times("lenet", "cluster-b", seconds) for seconds in (1.0, 2.0))
    assert (one.computing, two.computing) == pytest.approx((1, 2))
    assert two.forward == pytest.approx([2 * each for each in one.forward])


def test_readers_gain_no_more_than_cores() -> None:
    figure = module("s_caffe_4").FIGURE
    assert figure.model({"rates": {"files": [10.0, 15.0, 16.0, 17.0]}, "cores": 2}) == {"files": [10, 20, 20, 20]}
    checks = list(figure.check({"rates": {"files": [10.0, 19.0, 19.0, 15.0]}}, {}))
    assert [check.found for check in checks] == pytest.approx([1.9, 15 / 19])  # the least of 4 and 8 over 2


def test_a_link_has_the_latency_and_the_rate_of_its_short_and_long_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = module("simulated")
    monkeypatch.setattr(simulated, "burst", lambda comm, nbytes, row: 1e-3 + nbytes / 1e6)
    world = SimpleNamespace(comm=SimpleNamespace(bcast=lambda value, root: value))
    found = simulated.links(world, 8000)
    assert (found["alpha"], found["rate"]) == pytest.approx((1e-3, 1e6))
    assert (found["alpha_in"], found["rate_in"]) == (found["alpha"], found["rate"])
    monkeypatch.setattr(simulated, "burst", lambda comm, nbytes, row: 1e-3)  # beside other work: as long as a short one
    found = simulated.links(world, 8000)
    assert (found["alpha"], found["rate"]) == pytest.approx((0, 8e6))


def test_a_sum_of_two_arrays_moves_three(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = module("cores")
    clock = iter(range(100))
    monkeypatch.setattr(cores.time, "perf_counter", lambda: next(clock))
    assert cores.bandwidth(1000) == pytest.approx(3e-9 * 4000)  # a second each
