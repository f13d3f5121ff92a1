"""SingleCaffe's figures: models against closed forms, and wrong inputs that are refused."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
from paper_figures import module, verdicts

from scaffe import papers

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_threads_gain_what_the_parts_of_a_batch_say() -> None:
    figure = module("singlecaffe_6")
    gains = figure.FIGURE.model(linear() | trained(2))["gains"]["CIFAR-10"]["ReLU, batch 100"]
    assert gains[0] == 1
    assert gains[9] == pytest.approx(0.75 / (0.075 + sums("CIFAR-10", 10)))
    assert gains[23] == pytest.approx(0.75 / (0.0375 + sums("CIFAR-10", 24)))
    constant = one_core([1.0] * len(module("variants").SIZES)) | trained(1)
    assert figure.FIGURE.model(constant)["gains"]["MNIST"]["SGD, batch 64"][23] == pytest.approx(
        0.19 / (0.19 + sums("MNIST", 24))
    )
    assert verdicts(figure, constant)["CIFAR-10: best gain"] == papers.NOT_REPRODUCED


def one_core(passes: list[float], solvers: dict[str, float] | None = None) -> dict:
    """Return what `variants.measured_here` would, with the same seconds of passes for all nets."""
    variants = module("variants")
    updates = {
        data: {name: (solvers or {}).get(name, 0.0) for name in each} for data, each in variants.VARIANTS.items()
    }
    nets = {one.net for each in variants.VARIANTS.values() for one in each.values()}
    return {"passes": dict.fromkeys(nets, passes), "updates": updates}


def linear() -> dict:
    return one_core([1e-3 * n for n in module("variants").SIZES])


def sums(data: str, threads: int) -> float:
    """Return the seconds in which threads of a Tianhe-2 node sum slices, 68 GB/s, and meet, 20 us, three times each."""
    return 3 * threads * module("variants").BYTES[data] / 68e9 + 3 * 20e-6


def allreduced() -> dict:
    """Return allreduces of some seconds on the emulated nodes, for models whose results they leave alone."""
    return {"allreduces": {str(n): [1.0, 2.0, 3.0] for n in module("singlecaffe_9").FITTED_ON}}


def ratios_of(figure: ModuleType, measured: dict) -> dict:
    """Return a model's speed ratios alone."""
    return {"ratios": figure.FIGURE.model(measured | allreduced())["ratios"]}


def test_the_latency_and_the_rate_of_made_up_links_are_found_again() -> None:
    figure = module("singlecaffe_9")
    links = 3e-4, 8e-9
    made = {str(b): [figure.exchange(figure.HALVING, n, b, *links) for n in figure.COUNTS] for b in figure.FITTED_ON}
    assert figure.fit(made, figure.COUNTS) == pytest.approx(links)
    data = {"allreduces": made, "iterations": {}, **linear()}
    for name, nbytes in figure.BYTES.items():
        made[str(nbytes)] = [figure.exchange(figure.HALVING, n, nbytes, *links) for n in figure.COUNTS]
        data["iterations"][name] = {w: figure.FIGURE._emulated(data, name, w, links) for w in figure.RUNS}
    found = verdicts(figure, data)
    assert {verdict for what, verdict in found.items() if "off by" in what} == {papers.REPRODUCED}
    data["iterations"]["MNIST"]["server"] = [1.2 * t for t in data["iterations"]["MNIST"]["server"]]
    data["allreduces"][str(nbytes)] = [0.8 * t for t in made[str(nbytes)]]
    missed = {what for what, verdict in verdicts(figure, data).items() if verdict == papers.NOT_REPRODUCED}
    assert {what.partition(":")[0] for what in missed if "off by" in what} == {"MNIST, server", "MNIST"}


def test_exchanges_take_what_a_count_by_hand_gives() -> None:
    exchange = module("singlecaffe_9").exchange
    seconds = [exchange(way, 8, 1e6, 1e-3, 1e-8) for way in ("allreduce", "server", "tree")]
    assert seconds == pytest.approx([6e-3 + 17.5e-3, 14e-3 + 140e-3, 6e-3 + 60e-3])
    assert exchange("allreduce", 24, 1e6, 0, 1e-8) == pytest.approx((2 * 15 / 16 + 2) * 1e-2)
    assert exchange("server", 2, 1e6, 1e-3, 1e-8, 4e5) == pytest.approx(2e-3 + 2 * 6e-3)
    assert exchange("tree", 1, 1e6, 1, 1) == 0


def test_one_node_is_equal_to_no_fewer_nodes_than_its_gain_leaves_parts_for(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("singlecaffe_9")
    monkeypatch.setattr(figure, "exchange", lambda *given: 0.0)
    ratios = ratios_of(figure, linear())["ratios"]
    assert ratios["server"]["CIFAR-10"][0] == pytest.approx(16)  # the time of one node is fitted on this
    assert figure.crossing(ratios["server"]["CIFAR-10"]) == 17  # 16 nodes have 7 images of 100, more than a 16th
    part = 0.19 * 3 / 64  # of 22 threads
    assert min(ratios["server"]["MNIST"]) == pytest.approx(part / (part + sums("MNIST", 22)))


def test_one_node_s_factor_is_fitted_on_the_variant_that_gains_most() -> None:
    variants, figures = module("variants"), [module("singlecaffe_9").FIGURE, module("singlecaffe_10").FIGURE]
    measured = linear()
    measured["updates"]["CIFAR-10"]["BN"] = 0.02
    factor = 0.75 / (0.0375 + sums("CIFAR-10", 20)) / 16
    for figure in figures:
        *_, found = figure.given(measured)
        assert found.value == pytest.approx(factor) and found.origin == "fitted" and found.name == "one node, CIFAR-10"
        assert figure.given({}) == figure.inputs and found not in figure.inputs
        gains = {}
        for name in variants.VARIANTS["CIFAR-10"]:
            one = variants.of_paper(measured, "CIFAR-10", name, 0.75)(100)
            gains[name] = one / variants.best(measured, "CIFAR-10", name, figure.value)
        assert gains["ReLU"] == gains["Sigmoid"] == pytest.approx(16) and gains["BN"] < 15
    slower = one_core([1e-3 * n + 4e-3 for n in variants.SIZES])
    assert figures[0].given(slower)[-1].value < found.value


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
    assert {data: set(each) for data, each in short["updates"].items()} == {
        data: set(each) for data, each in variants.VARIANTS.items()
    }


def test_mnist_crosses_1_where_sums_of_slices_take_longer_than_an_allreduce(monkeypatch: pytest.MonkeyPatch) -> None:
    figure, variants = module("singlecaffe_9"), module("variants")
    what, part = "MNIST, allreduce: least ratio over 1 to 24 nodes", 0.19 * 3 / 64
    links = figure.FIGURE.value("alpha"), figure.FIGURE.value("beta")
    ratio = (part + figure.exchange("allreduce", 22, variants.BYTES["MNIST"], *links)) / (part + sums("MNIST", 22))
    assert ratio < 1
    slow = ratios_of(figure, linear())
    assert min(slow["ratios"]["allreduce"]["MNIST"]) == pytest.approx(ratio)
    assert verdicts(figure, {}, slow)[what] == papers.NOT_REPRODUCED
    faster = [one if one.name != "bandwidth" else replace(one, value=119.4e9) for one in figure.FIGURE.inputs]
    monkeypatch.setattr(figure.FIGURE, "inputs", faster)
    assert verdicts(figure, {}, ratios_of(figure, linear()))[what] == papers.REPRODUCED


def test_the_best_variant_has_the_gain_and_the_others_what_they_lose_beside_it() -> None:
    variants, value = module("variants"), module("singlecaffe_10").FIGURE.value
    slow = linear()
    slow["passes"]["cifar10_full_sigmoid_bn"] = [1e-3 * n + 0.05 for n in variants.SIZES]  # a cost of its own each time
    best = {name: variants.best(slow, "CIFAR-10", name, value) for name in variants.VARIANTS["CIFAR-10"]}
    assert best["ReLU"] == best["Sigmoid"] == pytest.approx(0.75 / 16)
    ratio = (0.4125 + sums("CIFAR-10", 20)) / (0.0375 + sums("CIFAR-10", 20))  # 7.5 s for each of the curve's
    assert best["BN"] / best["ReLU"] == pytest.approx(ratio)


def test_where_no_nodes_are_equal_to_one_the_words_say_so_and_the_check_misses() -> None:
    figure = module("singlecaffe_9")
    assert figure.crossing([2.0, 1.5]) == 3 and figure.equal([2.0, 1.5]) == "more than 2"
    assert figure.crossing([2.0, 0.9]) == 2 and figure.equal([2.0, 0.9]) == "2"
    found = verdicts(figure, {}, {"ratios": {"allreduce": {"CIFAR-10": [16.0, *[1.1] * 23], "MNIST": [1.0] * 24}}})
    assert [verdict for what, verdict in found.items() if "one node is equal" in what] == [papers.NOT_REPRODUCED]


def test_a_node_is_equal_to_too_few_or_to_its_nodes_where_it_gains_little_or_loses_much() -> None:
    figure = module("singlecaffe_9")
    for gain, wanted in ((8, papers.NOT_REPRODUCED), (16, papers.NO_EVIDENCE), (22, papers.NOT_REPRODUCED)):
        ratios = {"allreduce": {"CIFAR-10": [gain / n for n in range(1, 25)], "MNIST": [1.0] * 24}}
        found = verdicts(figure, {}, {"ratios": ratios})
        assert [verdict for what, verdict in found.items() if "one node is equal" in what] == [wanted]


@pytest.mark.parametrize("name", ["singlecaffe_9", "singlecaffe_10"])
def test_nothing_is_claimed_without_a_measurement(name: str) -> None:
    figure = module(name)
    assert figure.FIGURE.model({}) == {} and not verdicts(figure)
    assert module("figure").result(figure.FIGURE, {"why": "in use"})["verdict"] == papers.NOT_MEASURABLE


def test_a_costlier_update_moves_a_solvers_ratio_and_slow_links_all() -> None:
    figure = module("singlecaffe_10")
    measured = one_core([1e-3 * n for n in module("variants").SIZES], {"RMSProp": 0.1})
    ratios = figure.FIGURE.model(measured | {"allreduces": {str(n): [1.0, 2.0] for n in figure.FITTED_ON}})["ratios"]
    server = ratios["server"]["MNIST"]
    assert server["SGD"] == server["Adam"] and server["RMSProp"][0] == pytest.approx(164 / 103, rel=0.02)
    found = verdicts(figure, {}, {"ratios": ratios})
    assert found["MNIST, SGD, server: least ratio over 1 to 24 nodes"] == papers.REPRODUCED
    fast = {
        way: {d: {v: [r / 9 for r in each] for v, each in one.items()} for d, one in some.items()}
        for way, some in ratios.items()
    }
    missed = verdicts(figure, {}, {"ratios": fast})
    assert missed["MNIST, SGD, server: least ratio over 1 to 24 nodes"] == papers.NOT_REPRODUCED
    assert missed["CIFAR-10, server: least ratio below 15 nodes"] == papers.NOT_REPRODUCED
    assert missed["MNIST, RMSProp, server: largest ratio past 5 nodes"] == papers.REPRODUCED


def trained(gain: float, growth: float = 1.0) -> dict:
    """Return what singlecaffe-6 would measure: 2 threads gain so much, images' seconds are their number to a power."""
    figure = module("singlecaffe_6")
    found = {}
    for data in figure.VARIANTS:
        found[data] = {
            figure.label(one, n): one[1] ** growth / gain ** (n - 1) for one in figure.cases(data) for n in (1, 2)
        }
    return {"training": found, "bandwidth": 1e12}


def test_threads_that_gain_nothing_or_too_much_are_not_reproduced() -> None:
    figure = module("singlecaffe_6")
    for gain, growth, wanted in (
        (1.9, 0.99, set()),
        (0.9, 0.99, {"least"}),
        (2.1, 0.99, {"most"}),
        (1.9, 1.01, {"images"}),
    ):
        found = verdicts(figure, linear() | trained(gain, growth))
        words = {
            word
            for what, verdict in found.items()
            for word in ("least", "most", "images")
            if f"{word} of variants" in what or (word == "images" and "images/s" in what)
            if verdict == papers.NOT_REPRODUCED
        }
        assert words == wanted


def test_the_model_is_held_against_two_threads() -> None:
    figure = module("singlecaffe_6")
    measured = linear() | trained(1.9)
    for each in measured["training"].values():
        each.update({name: 1e-3 * seconds for name, seconds in each.items()})
    found = [verdict for what, verdict in verdicts(figure, measured).items() if "model over measured" in what]
    assert found == [papers.REPRODUCED] * 2
    measured["training"]["MNIST"]["Adam, batch 64, 2"] *= 2
    found = [verdict for what, verdict in verdicts(figure, measured).items() if "model over measured" in what]
    assert found == [papers.REPRODUCED, papers.NOT_REPRODUCED]
