"""swCaffe's figures: models against closed forms and counts, and measurements in short."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper_figures import ROOT, missed, module, verdicts

from scaffe import papers
from scaffe.papers import NO_EVIDENCE, NOT_REPRODUCED, REPRODUCED

LINK = str(ROOT / "jobs/lab/link.py")
pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_a_transfer_without_latency_has_the_memory_s_rate_and_a_flat_curve_is_refused() -> None:
    figure = module("swcaffe_2")
    cycles = figure.FIGURE.value("latency") / figure.FIGURE.value("clock")
    assert figure.FIGURE.rate(1 << 30) == pytest.approx(28e9, rel=1e-3)
    assert 1 / figure.FIGURE.rate(64) == pytest.approx(1 / 28e9 + cycles / (64 * 64))
    rising = {"rates": [3.0, *[9.0] * 4, *[10.0] * (len(figure.SIZES) - 5)]}
    assert not missed(figure, rising)
    assert missed(figure, {"rates": [10.0] * len(figure.SIZES)}) == ["measured"]


def test_blocks_are_copied_at_some_rate() -> None:
    figure = module("swcaffe_2")
    found = figure.copies(1 << 20, 1)
    assert list(found) == list(figure.SIZES) and all(rate > 0 for (rate,) in found.values())


def test_a_layer_s_passes_are_timed_in_each_way() -> None:
    figure = module("swcaffe_4")
    row = figure.Row(8, 16, 12, (), ())
    net = figure.convolution(row, figure.Compute(engine="reference"))
    net.bottoms[1][0].data[...] = np.random.default_rng(0).standard_normal(net.bottoms[1][0].shape)
    net.tops[1][0].diff[...] = 1.0
    assert len(figure.by_im2col(net)) == 3 and net.layers[1].param_propagate_down == [True, True]
    whole = [net.bottoms[1][0].diff.copy(), net.layers[1].blobs[0].diff.copy()]
    net.clear_param_diffs()
    net.layers[1].backward(net.tops[1], [True], net.bottoms[1])
    assert all(
        np.allclose(a, b) for a, b in zip(whole, (net.bottoms[1][0].diff, net.layers[1].blobs[0].diff), strict=True)
    )
    assert row.operations == 2 * 16 * 12 * 12 * 8 * 9


def test_onednn_s_passes_are_timed_with_columns_and_without(tmp_path: Path) -> None:
    figure = module("swcaffe_4")
    if module("core_rate").core_rate("float32") is None:
        pytest.skip("oneDNN is not installed")
    found = figure.layer_seconds(figure.Row(8, 16, 12, (), ()), tmp_path, rounds=1)
    assert list(found) == [figure.IM2COL, figure.DIRECT, figure.GEMM]
    assert all(len(each) == 3 and min(each) > 0 for each in found.values())


def test_winners_are_counted_where_both_plans_can_be_had_and_a_bad_choice_is_refused() -> None:
    figure = module("swcaffe_4")
    assert len(list(figure.configurations())) == 32
    ways = {figure.IM2COL: [2.0] * 3, figure.DIRECT: [1.0] * 3, figure.GEMM: [1.5] * 3}
    plans = {"blocked": [1.0], "channels last": [2.0], "plain": [3.0], "timed": [1.04]}
    direct = {"layers": dict.fromkeys(figure.TABLE_2, ways), "plans": plans}
    assert sum(a for a, _ in figure.winners(direct)) == 22 and all(b for _, b in figure.winners(direct))
    same = {name: {way: list(each) for way, each in ways.items()} for name in figure.TABLE_2}
    for name, k, implicit, explicit in figure.configurations():
        same[name][figure.DIRECT][k] *= 1 if implicit < explicit else 4
    found = verdicts(figure, {"layers": same, "plans": plans})
    assert list(found.values()) == [NO_EVIDENCE] * 3 + [REPRODUCED] * 3  # the paper's numbers alone; ours
    late = plans | {"timed": [1.06]}
    assert missed(figure, {"layers": same, "plans": late}) == ["measured"]


def test_the_pieces_of_a_mini_batch_are_those_counted_unit_by_unit() -> None:
    figure = module("swcaffe_5")
    for start in (0, 1, 255, 256, 257, 1023, 1024 * 31 + 700):
        units = Counter((start + k) // 1024 % 32 for k in range(768))
        assert Counter(dict(figure.pieces(start))) == units
        assert len(units) == (1 if start % 1024 <= 256 else 2)


def test_readers_wait_for_those_before_them() -> None:
    figure = module("swcaffe_5")
    apart = [1024 * k for k in range(32)]
    assert figure.makespan(apart) == 1.0 and figure.most_readers(apart) == 1
    assert figure.makespan([0, 0, 0]) == 3.0 and figure.makespan(apart, arrays=1) == 32.0
    across = [512, 512]  # two thirds on one array, then a third on the next: the second reader begins at 2 / 3
    assert figure.makespan(across) == pytest.approx(2 / 3 + 1)
    assert figure.most_readers(figure.in_order(1024)) == 1024 * 6 / 128


def test_readers_at_random_exceed_the_bound_and_what_leaves_no_choice_is_no_evidence() -> None:
    found = list(verdicts(module("swcaffe_5")).values())
    assert found[:4] == [NO_EVIDENCE, NO_EVIDENCE, REPRODUCED, NOT_REPRODUCED]
    assert found[4:] == [NO_EVIDENCE, REPRODUCED, REPRODUCED]


def test_a_swapped_pair_is_named_and_an_order_without_it_holds() -> None:
    figure = module("swcaffe_8")
    assert figure.swapped({"a": 3, "b": 2, "c": 1}, {"a": 3, "b": 1, "c": 2}) == ["b before c"]
    assert figure.swapped({"a": 3, "b": 2}, {"a": 30, "b": 20}) == []
    rates = {name: dict(each) for name, each in figure.TABLE_3.items()}
    work = {net: figure.operations(net) for net in figure.NETS}
    model = {"rates": rates, "convolutions": 7.47, "operations": work}
    seconds = {net: figure.BATCHES[net] * work[net] / 1e11 for net in figure.NETS}
    what = "one core here, against table III's CPU"
    measured = {"product": 120.0, "seconds": seconds}
    assert missed(figure, measured, model) == [what]
    assert "; 0 pairs of nets" in figure.FIGURE.words(measured, model)[0]  # without VGG-19
    assert missed(figure, {"product": 90.0, "seconds": seconds}, model)[1:] == ["one core here"]


def test_a_product_of_few_rows_waits_for_memory_and_the_named_layers_are_checked() -> None:
    figure = module("swcaffe_9")
    peak, memory = 742.4e9, 28e9
    assert figure.product_seconds(1e3, 1e3, 1e3, peak, memory) == pytest.approx(2e9 / peak)
    assert figure.product_seconds(32, 1e6, 32, peak, memory) == pytest.approx(4 * (64e6 + 1024) / memory)
    square = figure.LEAST - 2  # m / 6 operations for a byte, 26.5 of the chip
    assert figure.product_seconds(square, square, square, peak, memory) > 2 * square**3 / peak
    weak = {"conv1": ("convolution", 4.0, 1.0), "conv2": ("convolution", 3.0, 1.0), "conv3": ("convolution", 2.0, 1.0)}
    found = {net: {**weak, "pool1": ("pooling", 3.0, 1.0)} for net in figure.NETS}
    found["VGG-16"] = {name.replace("conv", "conv1_"): each for name, each in found["VGG-16"].items()}
    forward = [(64, 100.0), (256, 300.0)]
    assert not missed(figure, {}, {"times": found, "forward": forward})
    found["AlexNet"]["conv3"] = "convolution", 5.0, 1.0
    assert missed(figure, {}, {"times": found, "forward": forward}) == ["AlexNet"] * 2


def test_a_simulated_iteration_is_computing_and_the_halving_s_bytes() -> None:
    figure = module("swcaffe_10")
    nbytes = figure.narrow_net().packed.nbytes
    weights = 3 * 121 * 12 + 6 * 25 * 32 + 32 * 9 * 48 + 24 * 9 * 48 + 24 * 9 * 32 + 32 * 36 * 512 + 512 * (512 + 125)
    assert nbytes >= 4 * (weights + 12 + 32 + 48 + 48 + 32 + 512 + 512 + 125) > 0.99 * nbytes
    links = {"alpha": 0.0, "alpha_in": 0.0, "rate": 25e6, "rate_in": 25e6, "add": 1e15}
    for nodes in (2, 8):
        talking = 2 * (nodes - 1) / nodes * nbytes / 25e6
        assert figure.simulated(nodes, 0.5, links) == pytest.approx(0.5 + talking, rel=0.01)


def test_an_exchange_that_hides_is_refused() -> None:
    figure = module("swcaffe_10")

    def measured(hidden: float) -> dict:
        """Return what nodes would measure whose exchange takes as long as the fitted one's share says."""
        rows = {}
        for batch in figure.BATCHES:
            part = batch / 256
            together = part + 0.4313 * (1 - hidden)
            rows[str(batch)] = {"alone": part, "exchange": 0.4313, "together": together}
        return {"computing": 1.0, "nodes": dict.fromkeys(("2", "4", "8"), {"links": {}, **rows})}

    model = figure.FIGURE.model({})
    for hidden, wanted in ((0.0, 0), (0.1, 3)):
        given = measured(hidden)
        simulated = {
            n: {b: row["together"] for b, row in each.items() if b != "links"} for n, each in given["nodes"].items()
        }
        found = verdicts(figure, given, model | {"simulated": simulated})
        apart = [verdict for what, verdict in found.items() if "points apart" in what]
        assert apart.count(NOT_REPRODUCED) == wanted and len(apart) == 3
        slow = {n: {b: 1.2 * t for b, t in each.items()} for n, each in simulated.items()}
        assert any(what.startswith("simulated") for what in missed(figure, given, model | {"simulated": slow}))


def test_a_pair_of_nodes_begins_when_it_is_told_to() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, LINK, "serve"], **pipes) as server:
        assert server.stdout.readline() == "ready\n"
        with subprocess.Popen([sys.executable, LINK, "127.0.0.1", "wait"], **pipes) as client:
            assert client.stdout.readline() == "warm\n"
            assert float(client.communicate("\n")[0]) > 0
    assert server.returncode == 0


def test_a_pair_of_nodes_exchanges_each_size_after_a_line() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, LINK, "serve", "1024", "2097152"], **pipes) as server:
        assert server.stdout.readline() == "ready\n"
        with subprocess.Popen([sys.executable, LINK, "127.0.0.1", "wait", "1024", "2097152"], **pipes) as client:
            figure = module("swcaffe_6")
            assert client.stdout.readline() == "warm\n"
            first, second = (figure.exchanged([client], last) for last in (False, True))
            assert first > second > [0.0]  # seconds of a byte
    assert (client.returncode, server.returncode) == (0, 0)


def test_an_uplink_with_another_share_at_any_large_size_is_refused() -> None:
    figure = module("swcaffe_6")
    inside = [25e6] * len(figure.SIZES)

    def found(*shares: float) -> list[str]:
        rates = {"inside": inside, "across, one pair": inside}
        rates["across, all nodes"] = [25e6 * share for share in (*[1.0] * (len(inside) - 2), *shares)]
        return list(verdicts(figure, {"rates": rates}).values())

    assert found(0.25, 0.25) == [REPRODUCED] * 3
    assert found(0.4, 0.25) == [REPRODUCED, REPRODUCED, NOT_REPRODUCED]
    assert found(0.25, 0.4) == [NOT_REPRODUCED, REPRODUCED, NOT_REPRODUCED]


def test_bytes_across_are_counted_from_the_schedules() -> None:
    figure = module("swcaffe_7")
    model = {"crossing": {"8 4": [6, 2], "1024 256": [10, 2]}, "1024": [2.0, 1.0]}
    calls = [{"old": [1.9], "new": [1.0]}] * len(figure.SIZES)
    measured, modelled = figure.FIGURE.words(dict.fromkeys(figure.UPLINKS, calls), model)
    assert "bytes" not in measured and "bytes across 3, 5, counted" in modelled


def test_renumbering_sends_a_quarter_and_a_256th_across_and_a_wrong_rate_is_refused() -> None:
    figure = module("swcaffe_7")
    assert [old / new for old, new in (figure.crossed(8, 4), figure.crossed(1024, 256))] == [4, 256]
    assert figure.ratio(8, 4, 4) == pytest.approx(19 / 10)
    assert figure.ratio(8, 4, 1) == 1
    machine = replace(figure.TAIHULIGHT, nodes_per_supernode=8, alpha=0, gamma=0)
    old, new = figure.predicted(machine, 32, 1 << 20)
    assert old / new == pytest.approx(figure.ratio(32, 8, 4), rel=0.01)
    assert figure.FIGURE.value("old / new, 1,024 nodes") == pytest.approx(figure.ratio(1024, 256, 4), rel=1e-4)
    calls = [{"old": [1.9], "new": [1.0]}] * len(figure.SIZES)
    equal = [{"old": [1.0], "new": [1.0]}] * len(figure.SIZES)
    right, wrong = ({"a quarter": quarter, "full": equal} for quarter in (calls, equal))
    model = {"crossing": {"8 4": [4, 1], "1024 256": [256, 1]}, "1024": [figure.ratio(1024, 256, 4), 1.0]}
    assert set(verdicts(figure, right, model).values()) == {papers.REPRODUCED}
    assert (
        verdicts(module("swcaffe_7"), wrong, model)["time old / new, 64 MB, uplink of a quarter"]
        == papers.NOT_REPRODUCED
    )


def test_one_fitted_exchange_gives_the_other_speedups_and_nominal_rates_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figure = module("swcaffe_10")
    assert figure.speedup(1024, 2.0, figure.exchange_of(1024, 2.0, 715.45)) == pytest.approx(715.45)
    found = verdicts(figure)
    arithmetic = [verdict for what, verdict in found.items() if what.startswith("arithmetic on figures")]
    assert arithmetic == [NO_EVIDENCE] * 3 + [NOT_REPRODUCED, NO_EVIDENCE]
    assert list(found.values())[:2] == [REPRODUCED] * 2 and len(found) == 7
    nominal = figure.FIGURE.nominal("AlexNet's parameters")
    inputs = type(figure.FIGURE).inputs
    others = [replace(one, value=nominal) if one.name == "AlexNet's exchange" else one for one in inputs]
    monkeypatch.setattr(figure.FIGURE, "inputs", others)
    assert list(verdicts(figure).values())[:2] == [papers.NOT_REPRODUCED] * 2


def test_rates_above_the_roofline_and_another_order_of_nets_are_refused() -> None:
    figure = module("swcaffe_8")
    assert figure.FIGURE.model({})["convolutions"] == pytest.approx(7.47, abs=0.01)
    twice = {name: {net: 2 * rate for net, rate in rates.items()} for name, rates in figure.TABLE_3.items()}
    model = {"rates": twice, "convolutions": 7.47}
    found = verdicts(figure, {}, model)
    arithmetic = [what.startswith("arithmetic on") for what in found]
    assert list(found.values()) == [NO_EVIDENCE if each else REPRODUCED for each in arithmetic]
    half = twice | {"CPU": {net: rate / 4 for net, rate in twice["CPU"].items()}}
    assert list(verdicts(figure, {}, model | {"rates": half}).values()).count(papers.NOT_REPRODUCED) == 1
    swapped = twice | {"CPU": twice["CPU"] | {"AlexNet": 2.2}}
    assert list(verdicts(figure, {}, model | {"rates": swapped}).values()).count(papers.NOT_REPRODUCED) == 2
