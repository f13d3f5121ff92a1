"""Operations and bytes of layers, counted by hand."""

from __future__ import annotations

import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_lenets_operations_and_bytes_are_those_counted_by_hand() -> None:
    shapes = module("shapes")
    operations = 2 * (25 * 20 * 24 * 24 + 500 * 50 * 8 * 8 + 800 * 500 + 500 * 10)
    assert shapes.roofline("lenet", 1e9, float("inf"), training=False) == pytest.approx(operations / 1e9)
    assert shapes.parameters("lenet") == 4 * 431_080
    tops = 784 + 1 + 20 * 24 * 24 + 20 * 12 * 12 + 50 * 8 * 8 + 50 * 4 * 4 + 500 + 10 + 1
    assert shapes.activations("lenet") == 4 * tops


def test_a_roofline_has_both_passes_and_the_longer_of_operations_and_bytes() -> None:
    """The first convolution computes no gradients of its input."""
    shapes = module("shapes")
    first, others = 2 * 25 * 20 * 24 * 24, 2 * (500 * 50 * 8 * 8 + 800 * 500 + 500 * 10)
    assert shapes.roofline("lenet", 1e9, float("inf")) == pytest.approx((2 * first + 3 * others) / 1e9)
    moved = sum(sum(work.moved) for work in shapes.works("lenet").values())
    assert shapes.roofline("lenet", float("inf"), 1e9) == pytest.approx(moved / 1e9)
    both = shapes.roofline("lenet", 1e9, 1e9)
    assert max(2 * first + 3 * others, moved) <= both * 1e9 <= 2 * first + 3 * others + moved
