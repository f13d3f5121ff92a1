"""swCaffe's figures: models against closed forms, and wrong inputs that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from paper_figures import module, verdicts

from scaffe import papers

pytestmark = pytest.mark.mpi_skip


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
    missed = [what for what, verdict in found.items() if verdict != papers.REPRODUCED]
    assert missed == ["share of communication of ResNet-50 32, %, from the paper's speedup"] and len(found) == 7
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
    assert set(verdicts(figure, {}, model).values()) == {papers.REPRODUCED}
    half = twice | {"CPU": {net: rate / 4 for net, rate in twice["CPU"].items()}}
    assert list(verdicts(figure, {}, model | {"rates": half}).values()).count(papers.NOT_REPRODUCED) == 1
    swapped = twice | {"CPU": twice["CPU"] | {"AlexNet": 2.2}}
    assert (
        list(verdicts(figure, {}, model | {"rates": swapped}).values()).count(papers.NOT_REPRODUCED) == 2
    )
