"""NUMA-Caffe's figures: models against closed forms, and wrong inputs that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from paper_figures import module

pytestmark = pytest.mark.mpi_skip


def test_remote_bytes_fall_by_what_a_count_by_hand_gives() -> None:
    figure = module("numa_caffe_9")
    load = figure.Load(10, 0, 100, 20, 8, 50)
    assert figure.fall(load, 4) == pytest.approx(100 * (1 - (300 + 0.75 * 80) / (0.75 * 1350)))
    box = figure.Box(4, 1e9, 1e9, 1e9, 1e9)
    one, four = (figure.FIGURE.seconds("NUMA", replace(load, weights=0), box, n) for n in (1, 4))
    assert one == pytest.approx(4 * four)


def test_layers_without_bytes_gain_nothing_from_memory_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    figure, shapes = module("numa_caffe_12"), module("shapes")
    work = next(iter(shapes.works("lenet").values()))
    made = {
        "computes": replace(work, flops=(1e9, 1e9), moved=(0, 0)),
        "moves": replace(work, flops=(0, 0), moved=(8e6, 0)),
    }
    monkeypatch.setattr(shapes, "works", lambda name: made)
    intel, numa = (figure.seconds(system, "lenet") for system in ("Intel", "NUMA"))
    assert intel["computes"] == numa["computes"]
    assert numa["moves"] == pytest.approx(8e6 / (4 * figure.BOX.memory))
    assert intel["moves"] == pytest.approx(0.84 * 8e6 * 0.75 / figure.BOX.link)


def test_processes_have_weights_and_spread_pages_the_links_of_all_nodes() -> None:
    figure = module("numa_caffe_3")
    own = figure.FIGURE.memory(2) - figure.FIGURE.memory(1)
    assert own == pytest.approx(3 * 4 * 60_965_224 + 1.4e6)
    box = replace(figure.BOXES["SB"], memory=1e9, link=1e8)
    assert figure._spread(8e8, box) == pytest.approx(2e8 * 0.75 / 1e8)
