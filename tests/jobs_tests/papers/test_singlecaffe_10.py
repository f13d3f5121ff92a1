"""SingleCaffe, figure 10: iterations over nodes counted by hand, and each check that can be missed."""

from __future__ import annotations

import pytest
from paper_figures import missed, module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]

LENET = 1_724_320  # bytes of gradients
GOOD = {"ReLU": [1.1] * 14 + [0.9] * 10, "Sigmoid": [1.1] * 14 + [0.9] * 10, "BN": [1.1] * 14 + [0.9] * 10}
SOLVERS = {"SGD": [1.1] * 24, "Adam": [1.1] * 13 + [0.9] * 11, "RMSProp": [1.1] * 5 + [0.9] * 19}


def linear() -> dict:
    """Return a measurement in which an image takes a millisecond, and an update nothing."""
    variants = module("variants")
    nets = {one.net for each in variants.VARIANTS.values() for one in each.values()}
    updates = {data: dict.fromkeys(each, 0.0) for data, each in variants.VARIANTS.items()}
    return {"passes": {net: [1e-3 * n for n in variants.SIZES] for net in nets}, "updates": updates}


def test_an_iteration_is_the_largest_part_s_and_the_exchange_of_all_bytes_but_a_burst() -> None:
    seconds = module("singlecaffe_10").FIGURE._seconds
    part = 0.19 * 22 / 64  # of 3 nodes: 22, 21 and 21 images
    given = linear(), "MNIST", "SGD", "server", 3
    assert seconds(*given, (0.0, 1e-9)) == pytest.approx(part + 2 * 2 * LENET * 1e-9)
    assert seconds(*given, (1e-3, 1e-9), 1e5) == pytest.approx(part + 2 * (2e-3 + (2 * LENET - 1e5) * 1e-9))


def test_emulated_nodes_have_the_fitted_links_and_a_burst_and_ratios_go_to_24() -> None:
    figure = module("singlecaffe_10")
    links = 3e-4, 8e-9
    made = {str(b): [figure.exchange(figure.HALVING, n, b, *links) for n in (4, 8)] for b in figure.FITTED_ON}
    found = figure.FIGURE.model(linear() | {"allreduces": made})
    four, eight = found["iterations"]["MNIST"]["SGD"]["server"]
    assert four == pytest.approx(0.19 / 4 + 2 * (3 * 3e-4 + (3 * LENET - 131_072) * 8e-9))
    assert eight == pytest.approx(0.19 / 8 + 2 * (7 * 3e-4 + (7 * LENET - 131_072) * 8e-9))
    ratios = found["ratios"]["server"]["MNIST"]["Adam"]
    assert len(ratios) == 24
    assert ratios[23] == pytest.approx(
        (0.19 * 3 / 64 + 2 * 23 * (9e-6 + LENET / 6.36e9)) / found["best"]["MNIST"]["Adam"]
    )


@pytest.mark.parametrize(
    ("data", "name", "ratios", "what"),
    [
        ("CIFAR-10", "Sigmoid", [1.1] * 13 + [0.9] * 11, "least ratio below 15 nodes"),
        ("CIFAR-10", "BN", [1.1] * 21 + [0.9] * 3, "nodes at which one node is equal"),  # the last variant
        ("CIFAR-10", "ReLU", [1.1] * 14 + [0.9] * 9 + [0.7], "least ratio to 24 nodes"),
        ("MNIST", "SGD", [1.1] * 23 + [0.9], "least ratio over 1 to 24 nodes"),
        ("MNIST", "Adam", [1.1] * 11 + [0.9] * 13, "share of 1 to 24 nodes"),
        ("MNIST", "RMSProp", [1.1] * 6 + [0.9] * 18, "largest ratio past 5 nodes"),
    ],
)
def test_each_claim_of_the_paper_can_be_missed(data: str, name: str, ratios: list[float], what: str) -> None:
    figure = module("singlecaffe_10")

    def misses(**others: list[float]) -> list[str]:
        both = {"CIFAR-10": GOOD, "MNIST": SOLVERS}
        both[data] = both[data] | others
        model = {"ratios": {"server": both}}
        checks = figure.FIGURE.check({}, model)
        return [check.what for check in checks if check.by]

    assert misses() == []
    (found,) = misses(**{name: ratios})
    assert what in found


def test_the_farthest_variant_is_held_against_the_measured_iterations() -> None:
    figure = module("singlecaffe_10")
    one = {
        data: {name: dict.fromkeys(figure.RUNS, [1.0, 2.0]) for name in each} for data, each in figure.VARIANTS.items()
    }
    far = one | {"MNIST": one["MNIST"] | {"Adam": dict.fromkeys(figure.RUNS, [1.0, 2.4])}}
    model = {"ratios": {}, "iterations": one}
    assert not missed(figure, {"iterations": one}, model)
    assert missed(figure, {"iterations": far}, model) == ["MNIST, allreduce", "MNIST, server"]
