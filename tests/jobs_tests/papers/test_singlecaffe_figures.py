"""SingleCaffe's figures: models against closed forms, and wrong inputs that are refused."""

from __future__ import annotations

import pytest
from paper_figures import module, verdicts

from scaffe import papers

pytestmark = pytest.mark.mpi_skip


def test_the_exchange_of_made_up_links_is_found_again() -> None:
    figure = module("singlecaffe_9")
    made = {net: [figure.exchange(n, each, 3e-4, 8e-9) for n in figure.COUNTS] for net, each in figure.NETS.items()}
    assert figure.fit(made) == pytest.approx((3e-4, 8e-9))
    wrong = {net: [5 * t for t in seconds] if net == "MNIST" else seconds for net, seconds in made.items()}
    assert papers.NOT_REPRODUCED in verdicts(module("singlecaffe_9"), wrong).values()


def test_threads_gain_what_the_parts_of_a_batch_say() -> None:
    figure = module("singlecaffe_6")
    linear = {net: [1e-2 * n for n in figure.SIZES] for net in figure.NETS}
    constant = {net: [1.0] * len(figure.SIZES) for net in figure.NETS}
    gains = figure.FIGURE.model(linear)["gains"]["CIFAR-10"]["100"]
    assert gains[0] == 1 and gains[9] == pytest.approx(10, rel=0.01) and gains[23] == pytest.approx(20, rel=0.01)
    assert figure.FIGURE.model(constant)["gains"]["MNIST"]["64"][23] == pytest.approx(1, rel=0.01)
    assert verdicts(module("singlecaffe_6"), constant)["CIFAR-10: best gain"] == papers.NOT_REPRODUCED
