"""ParaX's models against counts by hand, and its measurements in short."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from types import SimpleNamespace

import pytest
from paper_figures import module

from scaffe.tools.work import LayerWork

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_a_layer_takes_its_start_and_the_longer_of_operations_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("parax_6")
    layers = {"product": LayerWork((10.0, 0.0), (6.0, 0.0)), "sum": LayerWork((0.0, 0.0), (5.0, 0.0))}
    for work in layers.values():
        object.__setattr__(work, "units", 1)
    trained = {"product": LayerWork((99.0, 99.0), (99.0, 99.0))}
    monkeypatch.setattr(figure.shapes, "works", lambda name, training=True: trained if training else layers)
    assert figure.layered("made up", flops=2.0, bandwidth=3.0, start=1.0) == pytest.approx((1 + 64 * 5, 1 + 64 * 5 / 3))
    assert figure.layered("made up", flops=100.0, bandwidth=3.0, start=0) == pytest.approx((64 * 2, 64 * 5 / 3))


def test_an_lstm_s_step_is_two_products_and_eleven_kernels() -> None:
    """Weights of 8 widths squared; 2 widths read and 8 written of each of 64 rows; 42 widths of element-wise work."""
    figure = module("parax_6")
    moved, products = 4 * (8 * 650**2 + 64 * 10 * 650), 2 * 64 * 8 * 650**2
    assert figure.lstm(1e30, 1e9, 0.0)[0] == pytest.approx(35 * moved / 1e9)
    assert figure.lstm(1e11, 1e9, 0.0)[0] == pytest.approx(35 * max(moved / 1e9, products / 1e11))
    assert figure.lstm(1e9, 1e9, 0.0)[1] == pytest.approx(35 * 4 * 64 * 650 * 42 / 1e9)
    assert figure.lstm(1e30, 1e30, 1.0) == pytest.approx((35 * 2, 35 * 11))


def test_memory_is_blobs_of_images_gradients_of_instances_weights_of_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = module("parax_18")
    a, p = 5e6, 7e7
    monkeypatch.setattr(memory.shapes, "activations", lambda name: a)
    monkeypatch.setattr(memory.shapes, "parameters", lambda name: p)
    found = memory.FIGURE.model({})
    assert found["GB"]["ResNet-50"] == pytest.approx([1e-9 * (64 * n * a + (n + 2) * p) for n in (1, 4, 14, 28, 56)])
    assert found["1792"]["value"] == pytest.approx(1e-9 * (1792 * a + 58 * p))


def test_an_instance_on_each_core_gains_where_barriers_cost_else_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("parax_11")
    small = figure.passes(True, "lenet")
    monkeypatch.setattr(figure, "passes", lambda inference: small)
    free = {"barrier": 0.0, "jitter": 0.0, "bandwidth": 1e15, "core bandwidth": 1e15}
    monkeypatch.setattr(figure.FIGURE, "instead", free)
    assert figure.FIGURE.gain(True) == pytest.approx(1.0, rel=0.05)
    monkeypatch.setitem(free, "barrier", 1e-3)
    assert figure.FIGURE.gain(True) > 1.5


def test_a_resnet_has_half_the_images_where_each_core_has_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("parax_13")
    monkeypatch.setattr(figure, "passes", lambda inference, net: None)
    monkeypatch.setattr(figure, "predict", lambda made, machine, division, times: SimpleNamespace(rate=division.images))
    images = [figure.rate.__wrapped__(None, *one) for one in (("resnet50", 1), ("resnet50", 2), ("mobilenet", 1))]
    assert images == [32, 64, 64]


def test_gathers_move_what_section_4_2_says() -> None:
    """An addition reads two and writes one, a copy reads one and writes one, an update reads two and writes one."""
    figure, gathers = module("parax_15"), module("gathers")
    for n in (2, 3, 4):
        server = 3 * (n - 1) + 3
        passes = {figure.GS: server, figure.PS: 2 + 3 * (n - 1) + 3 + 2 * n, figure.RING: (n - 1) * 5 + 3 * n}
        places = gathers.place(str(n), gathers.read_topology(), oversubscribe=True)
        for name, make in gathers.ways(n, 5000, [one.domain for one in places]):
            moved = gathers.timed(make(), places, 1)[1] / 5000 if name in passes else None
            if name == figure.GS:  # saves a pass where several gradients come at once
                assert moved <= server
            elif moved:
                assert moved == pytest.approx(passes[name], rel=1e-3)


def test_the_update_s_latencies_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("parax_15")
    for name, value in {"ELEMENTS": 5040, "TURNS": 1, "COUNTS": (2, 3)}.items():
        monkeypatch.setattr(figure, name, value)
    short = figure.FIGURE.measure()
    assert all(len(each) == 2 and min(each) > 0 for each in short["ms"].values())
    assert set(short["ms"]) == set(figure.COLOURS)


def test_what_diverges_is_in_no_mean() -> None:
    figure = module("parax_43")
    first, gone = [[98.0, 0.1], [96.0, 0.3]], [list(figure.CHANCE)] * 2
    found = figure.means([first, [first[0], gone[0]], gone])
    assert found[:2] == [97.0, 98.0] and isnan(found[2])


def test_section_4_3_in_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    figure = module("parax_43")
    for name, value in {"COUNTS": (1, 4), "SEEDS": (1,), "EPOCHS": 0.1, "BATCH": 16}.items():
        monkeypatch.setattr(figure, name, value)
    found = figure.all_trained(str(tmp_path))
    (one,), (four,) = found[figure.SAME]
    assert one == found[figure.SCALED][0][0] != four
    assert 0 < four[0] <= 100 and four[1] > 0
