"""Operations and bytes of layers, counted by hand."""

from __future__ import annotations

import pytest
from paper_figures import module

pytestmark = pytest.mark.mpi_skip


def test_lenets_operations_and_bytes_are_those_counted_by_hand() -> None:
    shapes = module("shapes")
    operations = 2 * (25 * 20 * 24 * 24 + 500 * 50 * 8 * 8 + 800 * 500 + 500 * 10)
    assert shapes.roofline("lenet", 1e9, float("inf"), training=False) == pytest.approx(operations / 1e9)
    assert shapes.parameters("lenet") == 4 * 431_080
    tops = 784 + 1 + 20 * 24 * 24 + 20 * 12 * 12 + 50 * 8 * 8 + 50 * 4 * 4 + 500 + 10 + 1
    assert shapes.activations("lenet") == 4 * tops
    memory = module("parax_18")
    assert memory.FIGURE.value("MobileNet-v1: blobs") == shapes.activations("mobilenet")
    assert memory.footprint("lenet", 3, 10) == 40 * tops + 5 * 4 * 431_080
