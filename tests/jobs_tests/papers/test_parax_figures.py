"""ParaX's figures: models against closed forms, and wrong inputs that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from paper_figures import kept, module

from scaffe.parallel.instances.simulation.layers import on_machine

pytestmark = pytest.mark.mpi_skip


def test_the_counted_bytes_of_parameter_server_and_ring_are_the_closed_forms() -> None:
    figure, gathers = module("parax_15"), module("gathers")
    for n in (2, 3, 4):
        places = gathers.place(str(n), gathers.read_topology(), oversubscribe=True)
        for name, make in gathers.ways(n, 5000, [one.domain for one in places]):
            moved = gathers.timed(make(), places, 1)[1] / 5000 if name in figure.COLOURS else None
            if name == figure.GS:  # saves a pass where several gradients come at once
                assert moved <= figure.passes(name, n)
            elif moved:
                assert moved == pytest.approx(figure.passes(name, n), rel=1e-3)


def test_an_update_through_slow_sockets_takes_what_its_bytes_take() -> None:
    figure = module("parax_15")
    nbytes, stream = 4 * figure.ELEMENTS, 1e6
    for way, n, times in ((figure.PS, 4, 8), (figure.RING, 4, 6), (figure.PS, 54, 108)):
        images = n * (32 if n == 54 else 64)
        rate = figure.FIGURE.rate(way, n, stream)
        assert rate == pytest.approx(images / (times * nbytes / (2 * stream)), rel=0.01)
    assert figure.FIGURE.rate(figure.GS, 4, stream) == figure.FIGURE.rate(figure.GS, 4, 2 * stream) > 1


def test_an_lstm_s_products_and_element_wise_operations_are_the_closed_form() -> None:
    figure = module("parax_6")
    products, others = figure.lstm(1e9, 1e30)
    assert products == pytest.approx(35 * 64 * 2 * 4 * 650 * 1300 / 1e9) and others == pytest.approx(0, abs=1e-9)
    assert figure.lstm(1e9, 1e9)[1] == pytest.approx(35 * 4 * 64 * 650 * 30 / 1e9)


def test_an_instance_on_one_core_has_the_rate_of_its_layers() -> None:
    figure = module("parax_13")
    machine = replace(figure.machine(2), jitter=0.0, cores=1, domains=1)
    seconds = sum(cost.seconds for cost in on_machine(figure.passes("MobileNet-v1", True).costs, machine))
    made = figure.predict(figure.passes("MobileNet-v1", True), machine, figure.Division(1, 64, divided=True), 1)
    assert made.rate == pytest.approx(1 / seconds, rel=0.02)


def test_the_parameter_server_s_and_the_ring_s_measured_passes_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("parax_15")
    monkeypatch.setattr(figure, "ELEMENTS", 5040)  # a multiple of each count
    monkeypatch.setattr(figure, "TURNS", 1)
    monkeypatch.setattr(figure, "STREAMS", 1)
    short = figure.FIGURE.measure()
    for way in (figure.PS, figure.RING):
        assert short["passes"][way] == pytest.approx(kept("parax-15")["passes"][way], rel=1e-3)
    checks = list(figure.FIGURE.check(short, figure.FIGURE.model(short)))
    assert len(checks) == len(figure.COUNTS) * 4 + 2 and all(check.found for check in checks)
