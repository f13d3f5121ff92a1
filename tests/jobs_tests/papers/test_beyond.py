"""Beyond each paper: gains and errors by hand, one source for each number, and what the ideas' numbers say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from paper_figures import missed, module

from scaffe import papers
from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.training import Division
from scaffe.simulation import find_cluster
from scaffe.simulation.estimate import TRIED

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_a_gain_counts_where_both_errors_leave_one() -> None:
    best = module("best_timed")
    own, ours = best.Timed(3.0, "", 0.1), best.Timed(2.0, "", 0.2)
    assert best.bounds(own, ours) == pytest.approx((1.5, 1.5 * 0.9 / 1.2, 1.5 * 1.1 / 0.8))
    assert best.is_beyond(best.bounds(own, ours))
    assert not best.is_beyond(best.bounds(replace(own, seconds=2.6), ours))
    row = best.row("a paper", "ndr", 9, None, ours, 1.0, 8)
    assert row["gain"] is None and not row["beyond"] and row["exceeds"] and row["best"] == 2000


def test_the_machines_have_the_numbers_of_the_papers_figures() -> None:
    parax, cluster = module("parax_11").FIGURE.value, find_cluster("8280")
    assert cluster["flops"] == module("parax_11").CORES * parax("core rate")
    assert (cluster["memory"], cluster["launch"]) == (parax("bandwidth"), parax("barrier"))
    assert cluster["rate_in"] == parax("core bandwidth") / 2
    assert cluster["add"] == pytest.approx(cluster["memory"] / 3, rel=1e-3)
    one_thread, gain = map(module("singlecaffe_6").FIGURE.value, ("CIFAR-10, one thread", "gain"))
    operations = sum(sum(work.flops) * 100 for work in module("shapes").works("cifar10_full").values())
    products = find_cluster("tianhe")["flops"] * one_thread / gain
    assert products == pytest.approx(operations, rel=0.15)  # the first layer has no gradient of its bottom
    design = module("best_designs").SINGLE
    assert design.net == module("variants").VARIANTS["CIFAR-10"]["ReLU"].net


def test_parax_s_batch_is_that_of_a_machine_in_two_halves() -> None:
    designs, inside = module("best_designs"), module("best_inside")
    resnets = module("parax_13").FIGURE.value("batch, inference, ResNets")
    assert 2 * designs.PARAX.batch == inside.TOTAL == resnets


def test_at_the_fitted_rate_the_exchange_takes_what_it_was_fitted_on() -> None:
    designs, figure = module("best_designs"), module("swcaffe_10").FIGURE
    nbytes = int(figure.value("AlexNet's parameters"))
    cluster = designs.machine(designs.FITTED_RATE, "taihulight")
    assert designs.exchange_at(cluster, nbytes) == pytest.approx(figure.value("AlexNet's exchange"))
    assert designs.machine(designs.SWCAFFE, "taihulight")["rate"] == 12e9


def test_a_batch_is_halved_until_it_fits_a_present_device() -> None:
    designs, shapes = module("best_designs"), module("shapes")
    more = designs.footprint("resnet50", 64) - designs.footprint("resnet50", 32)
    assert more == pytest.approx(32 * shapes.activations("resnet50") + shapes.pooled("resnet50", 32))
    added = designs.footprint("resnet50", 32, 28) - designs.footprint("resnet50", 32)
    assert added == pytest.approx(27 * shapes.parameters("resnet50"))
    large = replace(designs.PARAX, batch=3584)
    assert designs.batch_on(large, "ndr") == 896 and designs.batch_on(large, "8280") == 3584
    assert designs.footprint("resnet50", 896) < 80e9 < designs.footprint("resnet50", 1792)


def test_an_own_design_is_among_what_is_searched() -> None:
    designs = module("best_designs")
    assert {design.way.run for design in designs.DESIGNS if design.way} <= set(TRIED)
    for design, ranks in ((designs.GOOGLENET, 32), (designs.SWCAFFE, 1024)):
        row = designs.on(design, design.cluster, ranks, designs.times_of(design, design.cluster))
        assert row["gain"][0] >= 1 and row["alone"] > 0


def test_errors_are_those_of_the_docs() -> None:
    designs, value = module("best_designs"), module("best_timed").value
    cluster = find_cluster("taihulight")
    made, times = designs.net("cifar10_full", 100), designs.times_of(designs.SINGLE, "tianhe")
    for sync, name in (("reduce-bcast", "error, trees, slow additions"), ("allreduce", "error, allreduce")):
        run = replace(TRIED[0], workflow="SC-B", sync=sync)
        forms = designs.ClosedForms(cluster.links, 64, ("binomial",) if sync != "allreduce" else ("ring",))
        one = designs.estimate(made, cluster, run, times, forms)
        assert designs.error_of(one, cluster) == value(name)
        staged = replace(one, run=replace(run, workflow="SC-OBR"))
        assert designs.error_of(staged, cluster) == max(value(name), value("error, overlap"))


def test_the_best_division_is_the_fastest_of_all() -> None:
    inside, passes = module("best_inside"), module("parax_11").passes(False, "lenet")
    small = Machine(4, 2, 20e9, core_gflops=10.0, core_bandwidth=5e9, jitter=0.0)
    found = inside.searched(passes, small, 8, tuple(small.sizes()))
    assert found.rate >= max(inside.predict(passes, small, Division(x, 8, True), 1).rate for x in small.sizes())
    assert inside.of_box(inside.BOXES["BW"]).cores == 56


def test_links_that_take_no_time_leave_nothing_to_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    ideas, designs = module("best_ideas"), module("best_designs")
    free = {"rate": 1e30, "rate_in": 1e30, "add": 1e30, "alpha": 0.0, "alpha_in": 0.0}
    free_ndr = find_cluster("ndr").with_(**free, memory=1e30, launch=1e-4)
    monkeypatch.setattr(ideas, "find_cluster", lambda name: free_ndr)
    for gain in ideas.gains(designs.SINGLE, 64):
        assert gain["alone"][0] == gain["missing"][0] == pytest.approx(1.0, rel=0.01), gain["idea"]
    assert ideas.one_server(designs.SINGLE)["alone"][0] == pytest.approx(1.0)


def test_one_server_of_a_node_by_hand() -> None:
    ideas = module("best_ideas")
    slow = find_cluster("ndr").with_(rate_in=2.0, add=4.0, alpha_in=3.0, devices=8)
    assert ideas.exchanged(slow, 16.0) == pytest.approx(7 * 2 * 3 + 7 * 16 * (2 / 2 + 1 / 4))


def gain(idea: str, alone: float, missing: float, title: str = "a net") -> dict:
    pair = {name: (value, value / 1.2, value * 1.2) for name, value in (("alone", alone), ("missing", missing))}
    return {"idea": idea, "system": title, "ranks": 1024, **pair}


def test_a_sentence_follows_from_the_numbers() -> None:
    ideas = module("best_ideas")
    for alone, missing, words in (
        (3.0, 2.0, "pays: without it the best way takes up to 2.00 times as long (a net, 1,024 ranks; 1 of 5 nets)"),
        (3.0, 1.1, "pays alone: the plain way takes up to 3.00 times as long"),
        (1.1, 1.1, "gains nothing beyond the model's error"),
    ):
        assert ideas.verdict([gain("overlapped reduce", alone, missing)]).startswith(words)
    assert ideas.verdict([gain(ideas.SLICES, 1.0, 2.0)]).startswith("would pay: ")
    both = [gain("overlapped reduce", 1, 2.0), gain("overlapped reduce", 1, 4.0, "another")]
    assert "up to 4.00 times as long (another, 1,024 ranks; 2 of 5 nets)" in ideas.verdict(both)
    few = [{"ranks": ranks, "times": 0.5} for ranks in ideas.COUNTS]
    assert ideas.of_reading(few).startswith("are not needed: ")
    assert ideas.of_reading([few[0], few[1] | {"times": 2.0}]).startswith("pay: ")


def test_a_crossing_that_is_crowded_is_not_moot() -> None:
    ideas = module("best_ideas")
    found = {"gains": [gain(name, 1, 1) for name in (*(one.name for one in ideas.IDEAS), ideas.SLICES)]}
    found |= {"servers": [gain(ideas.SERVER, 1, 1)], "update": 0.02}
    found["reading"] = [{"ranks": ranks, "times": 2.0} for ranks in ideas.COUNTS]
    for crossing, words in ((1, "moot"), (4, "links across take 4 times as long")):
        texts = {name: text for name, _, text in ideas.sentences(found | {"oversubscription": crossing})}
        assert texts["ranks numbered by supernodes"].startswith(words)


def test_driven_ranks_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = module("best_driven")
    monkeypatch.setattr(driven, "RANKS", 16)
    (case,) = (one for one in driven.CASES if one.design.title == "SingleCaffe")
    form, real, error = driven.driven.__wrapped__(case)
    assert form == pytest.approx(real, rel=error)
    clusters = {design.cluster for design in module("best_designs").DESIGNS if design.cluster}
    assert {one.cluster for one in driven.CASES} == clusters | {"ndr"}


def test_checks_that_fail_are_the_model_s_not_a_paper_s() -> None:
    beyond, base = module("beyond_1"), module("figure")
    rows = [{"kind": "weak", "system": "s", "machine": "m", "ranks": n, "best": n} for n in beyond.COUNTS]
    model = {"driven": {"a case": (1.1, 1.0, 0.2)}, "memory": {"a net": (1e9, 2e9)}, "sources": {"two": (1.0, 1.1)}}
    assert not missed(beyond, {}, model | {"rows": rows})
    bad = {"driven": {"a case": (1.3, 1.0, 0.2)}, "memory": {"a net": (3e9, 2e9)}, "sources": {"two": (1.0, 1.5)}}
    assert len(missed(beyond, {}, bad | {"rows": [rows[1] | {"ranks": 1024}, rows[0] | {"ranks": 100_000}]})) == 4

    class Of(base.Figure):
        id, rank, title, source, paper, is_of_paper = "beyond-2", 1, "", "", "", False

        def check(self, measured: dict, modelled: dict) -> list:
            return [base.holds("one", True), base.holds("other", measured["truth"])]

        def words(self, measured: dict, modelled: dict) -> tuple[str, str]:
            return "", ""

    for truth, verdict in ((True, papers.HOLDS), (False, papers.FAILS)):
        found = base.result(Of(), {"measured": {"truth": truth}})
        assert found["verdict"] == verdict and found["checks"][0]["verdict"] == papers.HOLDS
    assert papers.why(found).startswith("other: ") and papers.counted([found]) == "1 model fails."
    assert papers.summary(found) == "model fails, 1 of 2 checks hold"
