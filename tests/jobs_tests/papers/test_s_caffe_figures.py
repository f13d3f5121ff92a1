"""S-Caffe's figures: models against closed forms, and wrong inputs that are refused."""

from __future__ import annotations

import pytest
from paper_figures import module, verdicts

from scaffe import papers

pytestmark = pytest.mark.mpi_skip


def test_a_simulated_chain_gains_what_equations_1_and_2_say() -> None:
    figure = module("s_caffe_11")
    assert figure.gain(8, 16) == pytest.approx(3 * 16 / 22)
    assert figure.simulated_gain(8 << 20) == pytest.approx(figure.gain(8, 16), rel=0.01)


def test_the_rate_is_that_at_which_communication_takes_the_wanted_share() -> None:
    figure = module("s_caffe_13")
    talking, update, operations = 300.0, 20.0, 1e12
    fastest = {figure.ALONE: update, figure.SC_B: update + talking}
    fast = {figure.ALONE: update + 1e3 * operations / figure.FAST}
    rate = figure.computing_rate(fastest, fast, 0.36)
    computing = update + 1e3 * operations / rate
    assert talking / (talking + computing) == pytest.approx(0.36)


def test_only_cc_8_is_out_of_the_order_of_table_2() -> None:
    figure = module("s_caffe_13")
    for ranks, elements in ((16, figure.CAFFENET), (64, 13_378_280), (160, figure.CAFFENET)):
        seconds = {d: figure.scaffe_row(a, figure.KESCH, ranks, elements).seconds for d, a in figure.ALGORITHMS.items()}
        assert sorted(seconds, key=lambda design: -seconds[design]) == ["SC-B", "CB-4", "CB-8", "CC-8"]


def test_computing_was_fitted_on_160_over_32_and_nothing_hides_without_overlap() -> None:
    figure = module("s_caffe_8")
    (one,) = (one for one in papers.results() if one["id"] == "s-caffe-8")
    assert one["checks"][0]["found"] == pytest.approx(2.5, rel=0.01)
    talking = figure.seconds(8, 1e-9, "no overlap")
    assert figure.seconds(8, 3.2, "no overlap") == pytest.approx(0.4 + talking, rel=1e-3)
    assert 0.4 < figure.seconds(8, 3.2) < 0.4 + talking


def test_without_an_exchange_gpus_scale_and_a_slow_one_is_refused() -> None:
    figure = module("s_caffe_9")
    one, many = (figure.FIGURE.seconds(n) for n in (1, 64))
    assert many - figure.talking(figure.KESCH, 64, figure.QUICK) == pytest.approx(one / 64)
    assert figure.FIGURE.samples(1, 79.25) == pytest.approx(79.25)
    model = {"speedups": [1.0, 32.0], "Caffe on 16": 1.0, "samples": {"copying as a K40m": [1395.0]}}
    assert set(verdicts(module("s_caffe_9"), {}, model).values()) == {papers.REPRODUCED}
    assert papers.NOT_REPRODUCED in verdicts(module("s_caffe_9"), {}, model | {"Caffe on 16": 1.1}).values()


def test_a_chain_that_gains_nothing_is_not_reproduced() -> None:
    figure = module("s_caffe_11")
    seconds = {"binomial": 48.0, "chain": 22.0, "cb-4": 30.0, "auto": 22.0}
    short = {"binomial": 1.0, "chain": 2.0, "cb-4": 1.5, "auto": 1.0}
    measured = {name: [[short[name]]] + [[seconds[name]]] * (len(figure.SIZES) - 1) for name in seconds}
    model = {"gain": figure.gain(8, 16)}
    assert set(verdicts(module("s_caffe_11"), measured, model).values()) == {papers.REPRODUCED}
    slow = verdicts(module("s_caffe_11"), measured | {"chain": measured["binomial"]}, model)
    assert slow["binomial / chain, 8 ranks, 16 chunks, 32 MB, measured"] == papers.NOT_REPRODUCED
    worse = verdicts(module("s_caffe_11"), measured | {"auto": measured["cb-4"]}, model)
    assert worse["scaffe's choice over the best fixed one, largest over the sizes"] == papers.NOT_REPRODUCED


def test_workflows_that_hide_nothing_are_not_reproduced() -> None:
    figure = module("s_caffe_13")
    ms = {figure.ALONE: 64.0, figure.TALKING: 36.0, figure.SC_B: 100.0, figure.SC_OB: 90.0, figure.SC_OBR: 85.0}
    gains = [f"gain of {name} over SC-B, %" for name in ("SC-OB", "SC-OBR")]
    for other, wanted in ((ms, papers.REPRODUCED), (ms | dict.fromkeys((figure.SC_OB, figure.SC_OBR), 100.0), None)):
        found = verdicts(module("s_caffe_13"), {"rate": 1.0, "ms": other})
        assert {found[gain] for gain in gains} == {wanted or papers.NOT_REPRODUCED}
