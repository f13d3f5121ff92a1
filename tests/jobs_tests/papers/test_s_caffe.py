"""S-Caffe's figures 9, 10, sections 4.1, 6.6: models against closed forms, checks that fail, short measurements."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from paper_figures import module, verdicts

from scaffe import models, papers

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_a_narrow_net_keeps_its_proportions() -> None:
    replays = module("replays")
    whole, quarter = (replays.times_at(replays.net("alexnet", width), 1e12, 1) for width in (1.0, 0.25))
    assert replays.net("alexnet").packed.nbytes == pytest.approx(4 * models.get("alexnet").parameters, rel=1e-4)
    assert replays.net("alexnet", 0.25).packed.nbytes == pytest.approx(
        replays.net("alexnet").packed.nbytes / 16, rel=0.01
    )
    first, *others = [i for i, t in enumerate(whole.forward) if t]
    assert whole.forward[first] / quarter.forward[first] == pytest.approx(4)
    assert [whole.forward[i] / quarter.forward[i] for i in others] == pytest.approx([16] * len(others))


def test_messages_take_the_wanted_share_of_sc_b() -> None:
    overlap = module("overlap")
    updating, talking = 0.02, 0.3
    computing = overlap.computing_of_share(0.36, updating, updating + talking)
    assert talking / (updating + talking + computing) == pytest.approx(0.36)
    with pytest.raises(ValueError, match="no share of 0.9"):
        overlap.computing_of_share(0.9, updating, updating + 0.1)


def test_a_replay_is_read_from_the_benchmark_s_table(monkeypatch: pytest.MonkeyPatch) -> None:
    replays, overlap = module("replays"), module("overlap")
    solver = SimpleNamespace(net=SimpleNamespace(packed=SimpleNamespace(nbytes=582_312)))
    given = SimpleNamespace(net="cifar10_quick", batch=1024, profile="flops:9.44317e+10", bucket_bytes="4M")
    each = {overlap.ALONE: [(100.0, 0), (80.0, 0)], "SC-B:flat": [(12345.67, 345.6), (12345.6, 345.6)]}
    each |= {overlap.TALKING["reduce-bcast"]: [(0.1, 0.0)]}
    rounds = {name: [overlap.Round(ms, 1.5, sums, ms - sums) for ms, sums in turns] for name, turns in each.items()}
    printed = "I1123 a line of the log\n" + overlap.table(8, given, solver, rounds)
    monkeypatch.setattr(replays.lab, "on_nodes", lambda *words: printed)
    found = replays.replayed("share:0.5", "SC-B:flat", "cifar10_quick", 1024)
    assert found["rate"] == 9.44317e10
    assert found["ms"] == {replays.ALONE: 90.0, replays.TALKING: 0.1, "SC-B:flat": 12345.6}
    assert found["sums"] == {replays.ALONE: 0.0, replays.TALKING: 0.0, "SC-B:flat": 345.6}
    assert found["rest"] == {replays.ALONE: 90.0, replays.TALKING: 0.1, "SC-B:flat": 12000.0}


def test_a_parameter_server_sends_all_through_its_root_and_a_ring_through_all_links() -> None:
    replays = module("replays")
    made, rate, ranks = replays.net("lenet"), 1e9, 4
    links = {"alpha": 0.0, "alpha_in": 0.0, "rate": rate, "rate_in": rate, "add": 1e15}
    found = {"rate": 1e15, "ms": {replays.ALONE: 0.0}, "links": links}
    once = 1e3 * made.packed.nbytes / rate
    server, ring = (replays.predicted_row(found, row, made, ranks, 1) for row in ("SC-B:flat", "SC-B:ring"))
    assert server == pytest.approx(2 * (ranks - 1) * once, rel=0.02)
    assert ring == pytest.approx(2 * (ranks - 1) / ranks * once, rel=0.05)


def test_a_slower_sc_obr_is_refused_beside_a_server_and_a_ring() -> None:
    figure = module("s_caffe_10")
    ms = {figure.SC_OBR: 100.0, figure.SERVER: 300.0, figure.RING: 120.0, figure.EARLY_RING: 91.0}
    rates = {name: [1395.0 * 100 / ms[row]] for row, name in figure.NAMES.items()}
    model = {"samples": rates, "no copying": 1500.0, "here": {figure.SC_OBR: {"8": 110.0}}}
    assert set(verdicts(figure, {"8": {"ms": ms}}, model).values()) == {papers.REPRODUCED}
    slow = {"8": {"ms": ms | {figure.SC_OBR: 310.0}}}
    assert list(verdicts(figure, slow, model).values()).count(papers.NOT_REPRODUCED) == 4
    found = verdicts(figure, {}, model | {"no copying": 2100.0})
    assert [what for what, verdict in found.items() if verdict == papers.NOT_REPRODUCED] == [
        "samples/s on 16 GPUs, a device as fast as a K40m without copying"
    ]


def test_cifar_s_and_alexnet_s_figures_take_the_same_device_with_and_without_copying() -> None:
    cifar, alexnet = module("s_caffe_9").FIGURE, module("s_caffe_10").FIGURE
    for name in ("K40m", "copying"):
        assert cifar.value(name) == alexnet.value(name)
    assert cifar.seconds(1) / cifar.seconds(1, copying=True) == pytest.approx(1 - alexnet.value("copying"))
    found = verdicts(
        module("s_caffe_9"), {}, {"speedups": [1.0, 32.0], "copying": 39.0, "Caffe on 16": 1.0, "here": {}}
    )
    assert found["64 GPUs over 1, modelled, with copying"] == papers.NOT_REPRODUCED


def test_the_phases_gain_what_hides_and_half_the_computing_gains_half_where_it_is_shorter() -> None:
    figure = module("s_caffe_6")
    assert [figure.phases(t, 0.5, 0.5) for t in (0.2, 1.5, 5.0)] == pytest.approx([20, 200 / 3, 20])
    assert figure.phases(0.1, 0.5, 0.5) == pytest.approx(10)
    assert figure.phases(3.0, 0.9, 0.1) == pytest.approx(100 * (4 / 3 - 1))
    model = {"gains": {"shorter": [20.0, 12.0], "longer": [20.0, 40.0]}, "here": {}}
    assert papers.NOT_REPRODUCED not in verdicts(figure, {}, model).values()
    rising = model | {"gains": {"shorter": [20.0, 40.0]}}
    assert list(verdicts(figure, {}, rising).values()).count(papers.NOT_REPRODUCED) == 2


def test_gains_outside_the_bounds_and_a_simulation_that_is_off_are_refused() -> None:
    figure = module("s_caffe_6")
    model = {"gains": {"shorter": [20.0, 12.0]}}

    def found(gain: float, simulated: float) -> list[str]:
        ms = {figure.SC_B: 100 + gain, figure.SC_OBR: 100.0}
        measured = dict.fromkeys((figure.LESS, figure.MORE), {"ms": ms})
        measured[figure.FEWER] = {"ms": ms | {figure.SC_B: 100 + 2 * gain}}
        here = {name: {figure.SC_OBR: simulated} for name in measured}
        return list(verdicts(figure, measured, model | {"here": here}).values())

    assert papers.NOT_REPRODUCED not in found(20, 110)
    assert found(30, 110).count(papers.NOT_REPRODUCED) == 2
    assert found(20, 120).count(papers.NOT_REPRODUCED) == 3


def test_cifar_s_speedups_are_those_of_the_measured_iterations() -> None:
    figure = module("s_caffe_9")
    rows = figure.SC_B, figure.SC_OBR, figure.CAFFES
    measured = {str(n): {"ms": dict.fromkeys(rows, t)} for n, t in ((1, 80.0), (2, 50.0), (4, 30.0), (8, 20.0))}
    assert figure.speedups(measured, figure.SC_OBR) == pytest.approx([1, 1.6, 80 / 30, 4])
    here = {n: one["ms"][figure.SC_OBR] * 1.1 for n, one in measured.items() if n != "1"}
    model = {"speedups": [1.0, 32.0], "copying": 32.0, "Caffe on 16": 1.0, "here": here}
    assert papers.NOT_REPRODUCED not in verdicts(figure, measured, model).values()
    wrong = verdicts(figure, measured, model | {"here": here | {"4": 40.0}})
    assert wrong["SC-OBR, 4 nodes here: model over measured"] == papers.NOT_REPRODUCED


def test_readers_that_gain_nothing_are_refused_and_the_measurement_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("s_caffe_4")
    rates = dict.fromkeys(figure.BATCHES, [10.0, 19.0, 19.0, 18.0])
    assert set(verdicts(figure, {"rates": rates}, {}).values()) == {papers.REPRODUCED}
    rates[figure.FILES] = [10.0, 10.0, 10.0, 8.0]
    assert list(verdicts(figure, {"rates": rates}, {}).values()).count(papers.NOT_REPRODUCED) == 2
    for name, value in {"COUNTS": (1, 2), "ROUNDS": 1, "SECONDS": 0.05}.items():
        monkeypatch.setattr(figure, name, value)
    short = figure.FIGURE.measure()
    assert all(rate > 0 for each in short["rates"].values() for rate in each)


def test_a_drift_of_the_machine_leaves_readers_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    figure, calls = module("s_caffe_4"), iter(range(1000))
    monkeypatch.setattr(figure, "ROUNDS", 2)
    monkeypatch.setattr(figure, "sources", lambda folder: dict.fromkeys(figure.BATCHES, ""))
    monkeypatch.setattr(module("reading"), "processes", lambda *given: float(next(calls)))
    rates = figure.FIGURE.measure()["rates"]
    assert {rate for each in rates.values() for rate in each} == {len(rates) * len(figure.COUNTS) - 0.5}


def test_a_simulated_chain_gains_what_equations_1_and_2_say() -> None:
    figure = module("s_caffe_11")
    assert figure.gain(8, 16) == pytest.approx(3 * 16 / 22)
    assert figure.simulated_gain(8 << 20) == pytest.approx(figure.gain(8, 16), rel=0.01)


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


def test_each_switch_of_googlenet_lowers_both_speedups_and_takes_time() -> None:
    figure = module("s_caffe_8")
    gains, seconds = ({way: value for way in figure.WAYS} for value in ([2.5, 3.3], [1.0]))
    model = {"gains": gains, "seconds": seconds, "here": {}}
    assert papers.NOT_REPRODUCED not in verdicts(figure, {}, model).values()
    for way in figure.SWITCHED:
        better = verdicts(figure, {}, model | {"gains": gains | {way: [2.6, 3.4]}})
        assert list(better.values()).count(papers.NOT_REPRODUCED) == 2
        faster = verdicts(figure, {}, model | {"seconds": seconds | {way: [0.9]}})
        assert list(faster.values()).count(papers.NOT_REPRODUCED) == 1


def test_without_an_exchange_gpus_scale_and_a_slow_one_is_refused() -> None:
    figure = module("s_caffe_9")
    one, many = (figure.FIGURE.seconds(n) for n in (1, 64))
    assert many - figure.talking(64) == pytest.approx(one / 64)
    model = {"speedups": [1.0, 32.0], "copying": 32.0, "Caffe on 16": 1.0, "here": {}}
    assert set(verdicts(module("s_caffe_9"), {}, model).values()) == {papers.REPRODUCED}
    assert papers.NOT_REPRODUCED in verdicts(module("s_caffe_9"), {}, model | {"Caffe on 16": 1.1}).values()


def test_a_chain_that_gains_nothing_is_not_reproduced() -> None:
    figure = module("s_caffe_11")
    seconds = {"binomial": 48.0, "chain": 22.0, "cb-4": 30.0, "auto": 22.0}
    short = {"binomial": 1.0, "chain": 2.0, "cb-4": 1.5, "auto": 1.0}
    measured = {name: [[short[name]]] + [[seconds[name]]] * (len(figure.SIZES) - 1) for name in seconds}
    measured["others"] = [{"mpi": [1.0]}] + [{"chain/61440": [21.5]}] * (len(figure.SIZES) - 1)
    model = {
        "gain": figure.gain(8, 16), "few": [1.0], "cuts": [1.0], "two levels": 1.0, "tuned": [1.0],
        "chains": {"any chunks": [1.0, 2.0, 3.0, 2.0]}, "ms": {"binomial": [2.6], "cb-8": [1.0], "cc-8": [1.0]},
    }  # fmt: skip
    found = set(verdicts(module("s_caffe_11"), measured, model).values())
    assert found == {papers.REPRODUCED, papers.NO_EVIDENCE}
    slow = verdicts(module("s_caffe_11"), measured | {"chain": measured["binomial"]}, model)
    assert slow["binomial / chain, 8 ranks, 16 chunks, 32 MB, measured"] == papers.NOT_REPRODUCED
    for faster in ({"auto": measured["cb-4"]}, {"others": [{"mpi": [0.9]}, *measured["others"][1:]]}):
        worse = verdicts(module("s_caffe_11"), measured | faster, model)
        assert [what[:15] for what, verdict in worse.items() if verdict == papers.NOT_REPRODUCED] == ["scaffe's choice"]


def test_chains_that_section_5_does_not_have_are_not_reproduced() -> None:
    figure = module("s_caffe_11")
    modelled = figure.FIGURE.model({})
    assert modelled["few"] == pytest.approx([1.0] * len(modelled["few"]))
    missed = [what for what, verdict in verdicts(figure, {}, modelled).items() if verdict == papers.NOT_REPRODUCED]
    assert [what.partition(",")[0] for what in missed] == [
        "binomial / chain", "length of a chain that gains most over a binomial tree", "CB-8 over CC-8", "HR",
    ]  # fmt: skip
    assert min(modelled["cuts"]) == pytest.approx(figure.gain(8, 2), rel=0.01)
    assert (
        max(modelled["chains"]["16 chunks"])
        == modelled["chains"]["16 chunks"][2]
        < max(modelled["chains"]["the best chunks"])
    )


TABLE_2_ORDER = {"aggregation": {"SC-B": 4.0, "CC-8": 3.0, "CB-4": 2.0, "CB-8": 1.0}, "computing": 64.0}


def test_workflows_that_hide_nothing_are_not_reproduced() -> None:
    figure = module("s_caffe_13")
    ms = {figure.ALONE: 64.0, figure.TALKING: 36.0, figure.SC_B: 100.0, figure.SC_OB: 90.0, figure.SC_OBR: 85.0}
    gains = [f"gain of {name} over SC-B, %" for name in ("SC-OB", "SC-OBR")]
    for other, wanted in ((ms, papers.REPRODUCED), (ms | dict.fromkeys((figure.SC_OB, figure.SC_OBR), 100.0), None)):
        found = verdicts(figure, {"ms": other}, TABLE_2_ORDER)
        assert {found[gain] for gain in gains} == {wanted or papers.NOT_REPRODUCED}


def test_sc_ob_hides_no_more_than_its_forward_pass_or_its_broadcast() -> None:
    figure = module("s_caffe_13")
    ms = {figure.ALONE: 64.0, figure.TALKING: 36.0, figure.SC_B: 100.0, figure.SC_OB: 83.0, figure.SC_OBR: 85.0}
    found = {"ms": ms, "sums": {figure.SC_B: 18.0}}
    assert figure.least(found, 64.0) == 82 and figure.least(found, 30.0) == 90
    what = next(what for what in verdicts(figure, found, TABLE_2_ORDER) if what.startswith("SC-OB over its least"))
    assert verdicts(figure, found, TABLE_2_ORDER)[what] == papers.REPRODUCED
    assert verdicts(figure, found | {"ms": ms | {figure.SC_OB: 81.0}}, TABLE_2_ORDER)[what] == papers.NOT_REPRODUCED


def test_the_layers_that_were_replayed_take_what_their_rate_says() -> None:
    figure, replays = module("s_caffe_13"), module("replays")
    rate = figure.BATCH * replays.rate_of(replays.net(figure.NET), 2.0)
    assert figure.FIGURE.model({"rate": rate})["computing"] == pytest.approx(2000)


def test_table_2_s_designs_have_one_rest_and_an_order_and_others_are_refused() -> None:
    figure = module("s_caffe_13")
    sums = {design: aggregation for design, (aggregation, _) in figure.TABLE_2.items()}
    rest = {design: total - aggregation for design, (aggregation, total) in figure.TABLE_2.items()}

    def refused(sums: dict[str, float], rest: dict[str, float]) -> list[bool]:
        return [check.verdict == papers.NOT_REPRODUCED for check in figure.table_checks(sums, rest)]

    assert refused(sums, rest) == [False, False, False]
    assert refused(sums, rest | {"CB-4": 76.0}) == [True, False, False]
    assert refused(sums | {"CC-8": 17.0}, rest) == [False, False, False]
    assert refused(sums | {"CB-8": 20.0}, rest) == [False, False, True]
    ms = {figure.ALONE: 64.0, figure.TALKING: 36.0, figure.SC_B: 100.0, figure.SC_OB: 90.0, figure.SC_OBR: 85.0}
    both = {"ms": ms, figure.DESIGNS: {"sums": sums, "rest": rest}}
    assert len(verdicts(figure, both, TABLE_2_ORDER)) == len(verdicts(figure, {"ms": ms}, TABLE_2_ORDER)) + 3


def test_only_the_sums_of_table_2_s_rows_go_by_their_design() -> None:
    overlap, figure = module("overlap"), module("s_caffe_13")
    for algorithm in figure.ALGORITHMS.values():
        run = module("replays").run_of(overlap.SUMS + algorithm)
        run.check_reduce()
        assert (run.workflow, run.how["algorithm"], run.how_down["algorithm"]) == ("SC-B", algorithm, "auto")
