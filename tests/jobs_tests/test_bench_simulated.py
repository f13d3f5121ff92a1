"""simulated.py: the links that it measures before it simulates them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


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
