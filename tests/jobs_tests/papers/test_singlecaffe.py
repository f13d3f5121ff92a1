"""SingleCaffe's models against closed forms."""

from __future__ import annotations

import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]

LINKS = {"alpha": 1e-3, "beta": 1e-8}


def one_core(passes: list[float]) -> dict:
    """Return what `variants.measured_here` would, with the same seconds of passes for all nets."""
    variants = module("variants")
    updates = {data: dict.fromkeys(each, 0.0) for data, each in variants.VARIANTS.items()}
    nets = {one.net for each in variants.VARIANTS.values() for one in each.values()}
    return {"passes": dict.fromkeys(nets, passes), "updates": updates}


def linear() -> dict:
    return one_core([1e-3 * n for n in module("variants").SIZES])


def sums(data: str, threads: int) -> float:
    """Return the seconds in which threads of a Tianhe-2 node sum slices, 68 GB/s, and meet, 20 us, three times each."""
    return 3 * threads * module("variants").BYTES[data] / 68e9 + 3 * 20e-6


def test_threads_gain_what_the_parts_of_a_batch_say() -> None:
    figure = module("singlecaffe_6").FIGURE
    gains = figure.gains(linear(), "ReLU")
    assert gains[0] == 1
    assert gains[9] == pytest.approx(0.75 / (0.075 + sums("CIFAR-10", 10)))
    assert gains[23] == pytest.approx(0.75 / (0.0375 + sums("CIFAR-10", 24)))
    constant = one_core([1.0] * len(module("variants").SIZES))
    assert figure.gains(constant, "ReLU")[23] == pytest.approx(0.75 / (0.75 + sums("CIFAR-10", 24)))


def test_the_model_s_error_is_that_of_two_threads_here() -> None:
    figure = module("singlecaffe_6")
    two = 0.05 + 3 * 2 * module("variants").BYTES["CIFAR-10"] / 1e12 + 3 * 20e-6
    training = {figure.label(name, n): 0.1 / n for name in ("ReLU", "Sigmoid", "BN") for n in (1, 2)}
    measured = linear() | {"training": training, "bandwidth": 1e12}
    assert figure.FIGURE.model(measured)["error"] == pytest.approx(two / 0.05 - 1)
    training[figure.label("BN", 2)] = 0.1
    assert figure.FIGURE.model(measured)["error"] == pytest.approx(1 - two / 0.1)


def test_exchanges_take_what_a_count_by_hand_gives() -> None:
    exchange = module("variants").exchange
    seconds = [exchange(way, 8, 1e6, LINKS.get) for way in ("allreduce", "server", "tree")]
    assert seconds == pytest.approx([6e-3 + 17.5e-3, 14e-3 + 140e-3, 6e-3 + 60e-3])
    assert exchange("allreduce", 24, 1e6, {"alpha": 0, "beta": 1e-8}.get) == pytest.approx((2 * 15 / 16 + 2) * 1e-2)
    assert exchange("tree", 1, 1e6, LINKS.get) == 0


def test_mnist_crosses_1_where_sums_of_slices_take_longer_than_an_allreduce() -> None:
    figure, variants = module("singlecaffe_9").FIGURE, module("variants")
    part = 0.19 * 3 / 64  # of 22 threads and of 22 nodes
    exchange = variants.exchange("allreduce", 22, variants.BYTES["MNIST"], figure.value)
    ratio = (part + exchange) / (part + sums("MNIST", 22))
    assert ratio < 1
    assert min(variants.ratios(linear(), "SGD", "allreduce", figure.value)) == pytest.approx(ratio)
    figure.instead = {"bandwidth": 119.4e9}
    assert min(variants.ratios(linear(), "SGD", "allreduce", figure.value)) > 1
    figure.instead = {}
    solvers = module("singlecaffe_10").FIGURE.model(linear())
    assert solvers["past"]["value"] == solvers["ratios"]["RMSProp"][6 - 1]  # nodes


def test_all_calls_take_turns_there_and_back_and_share_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    variants = module("variants")
    order: list[str] = []
    monkeypatch.setattr(variants, "LEAST", 0.0)
    found = variants.in_turns({name: lambda name=name: order.append(name) for name in "ab"})
    calls = variants.FEW
    rounds = "".join(order[2 * variants.WARM_UP :])
    assert rounds[: 4 * calls] == "a" * calls + "b" * 2 * calls + "a" * calls
    assert len(rounds) == 2 * calls * variants.ROUNDS and set(found) == {"a", "b"} and min(found.values()) > 0
    for name, value in {"SIZES": (1, 2), "ROUNDS": 1, "WARM_UP": 1}.items():
        monkeypatch.setattr(variants, name, value)
    variants.measured_here.cache_clear()
    short = variants.measured_here()
    assert short is variants.measured_here()
    variants.measured_here.cache_clear()
    assert all(len(each) == 2 and min(each) > 0 for each in short["passes"].values()) and len(short["passes"]) == 4
    wanted = {data: list(each) for data, each in variants.VARIANTS.items()}
    assert {data: list(each) for data, each in short["updates"].items()} == wanted
