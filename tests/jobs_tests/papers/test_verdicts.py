"""Verdicts: how numbers are judged, and that each figure's verdict can be another one."""

from __future__ import annotations

import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]
REPRODUCED, SHAPE, EXCEEDED, DIFFERS = "reproduced", "reproduced in shape", "exceeded", "differs"
UNCLEAR, INCONCLUSIVE = "paper unclear", "inconclusive"


def found(value: float, low: float | None = None, high: float | None = None) -> dict[str, float]:
    """Return a number with its range, as a model has it."""
    return {"value": value, "low": value if low is None else low, "high": value if high is None else high}


def test_a_gain_is_compared_with_the_paper_s() -> None:
    compared = module("verdicts").compared
    gains = (1.9, 2.15, 2.5, 1.2, 0.9, 1.0)
    assert [compared(one, 2.0, 0.1) for one in gains] == [REPRODUCED, REPRODUCED, EXCEEDED, SHAPE, DIFFERS, DIFFERS]


def test_a_verdict_that_flips_in_the_range_is_inconclusive() -> None:
    verdicts = module("verdicts")
    assert verdicts.judged(verdicts.Found(2.0, 1.9, 2.1), 2.0, 0.1) == REPRODUCED
    assert verdicts.judged(verdicts.Found(2.0, 1.5, 2.1), 2.0, 0.1) == INCONCLUSIVE
    assert verdicts.judged(verdicts.Found(1.5, 1.2, 1.7), 2.0, 0.1) == SHAPE


def test_each_input_in_turn_is_tried_at_the_ends_of_its_range() -> None:
    base = module("figure")

    class MadeUp(base.Figure):
        id = "s-caffe-11"
        inputs = base.Input("a", 2.0, "", "-", "-", 1.0, 4.0), base.Input("b", 3.0, "", "-", "-", None, 5.0)

    figure = MadeUp()
    made = figure.spread(lambda: figure.value("a") * figure.value("b"))
    assert (made.value, made.low, made.high) == (6, 3, 12)
    assert figure.value("a") == 2 and made.words("x") == "6x (3 to 12)"


LAYERS = {"direct": [1.0] * 3, "with columns": [2.0] * 3}
TABLE = ["1_1", "1_2", "2_1", "2_2", "3_1", "3_2", "3_3", "4_1", "4_2", "4_3", "5_1", "5_2", "5_3"]
DIGITS = [[[98.0, 0.1]], [[97.0, 0.1]], [[80.0, 0.9]]]
WAYS = {"1 solver": 90.0, "8 instances, tree": 90.1, "8 instances, slices": 90.0, "4 ranks": 89.9}
WAYS |= {"2 ranks of 2, server": 90.4}
ONES, SMALL = [[1.0]] * 5, {"full": [{"old": [1.0], "new": [1.0]}] * 2}
GAINS = {"gains": {"training": 1.0, "inference": 1.0}}
UPDATE = {"server": [1.0] * 7, "parameter server": [2.0] * 7, "ring": [3.0] * 7}
MNIST = {"allreduce": found(1.2), "server": found(1.4), "tree": found(1.3)}
CASES = [  # a figure, what was measured, what was modelled, the verdict
    ("s_caffe_11", {"binomial": [[2.1]] * 5, "chain": ONES, "auto": ONES}, {}, REPRODUCED),
    ("s_caffe_11", {"binomial": [[1.5]] * 5, "chain": ONES, "auto": ONES}, {}, SHAPE),
    ("s_caffe_11", {"binomial": ONES, "chain": ONES, "auto": ONES}, {}, DIFFERS),
    ("s_caffe_11", {"binomial": [[2.1]] * 4 + [[1.5]], "chain": ONES, "auto": ONES}, {}, INCONCLUSIVE),
    ("s_caffe_13", {"rest": {"computing alone": 80.0, "SC-B:auto": 100.0, "SC-OB:auto": 85.0}}, {}, REPRODUCED),
    ("s_caffe_13", {"rest": {"computing alone": 70.0, "SC-B:auto": 100.0, "SC-OB:auto": 75.0}}, {}, SHAPE),
    ("s_caffe_13", {"rest": {"computing alone": 80.0, "SC-B:auto": 100.0, "SC-OB:auto": 101.0}}, {}, DIFFERS),
    ("s_caffe_6", {}, {"16": found(11.0), "x": []}, REPRODUCED),
    ("s_caffe_6", {}, {"16": found(11.0, 5.0), "x": []}, INCONCLUSIVE),
    ("s_caffe_6", {}, {"16": found(30.0), "x": []}, EXCEEDED),
    ("s_caffe_8", {}, {"128 over 16": [2.9, 3.7, 5.2, 6.0], "160 over 32": [1.4, 1.8, 2.5, 3.0]}, UNCLEAR),
    ("s_caffe_9", {}, {"64": found(59.0)}, DIFFERS),
    ("s_caffe_9", {}, {"64": found(33.0)}, REPRODUCED),
    ("s_caffe_10", {}, {"samples": [1300.0], "fast": [1400.0]}, REPRODUCED),
    ("s_caffe_10", {}, {"samples": [1267.0], "fast": [2109.0]}, INCONCLUSIVE),
    ("swcaffe_4", {"layers": dict.fromkeys(TABLE, LAYERS)}, {}, SHAPE),
    ("swcaffe_4", {"layers": dict.fromkeys(TABLE, {"direct": [2.0] * 3, "with columns": [1.0] * 3})}, {}, DIFFERS),
    ("swcaffe_5", {}, {"in order": [48], "at random": [72.0]}, UNCLEAR),
    ("swcaffe_7", SMALL | {"a quarter": [{"old": [9.0], "new": [1.0]}, {"old": [1.9], "new": [1.0]}]}, {}, REPRODUCED),
    ("swcaffe_7", SMALL | {"a quarter": [{"old": [1.9], "new": [1.0]}, {"old": [1.3], "new": [1.0]}]}, {}, SHAPE),
    ("swcaffe_10", {}, {"fitted": [found(715.0), found(550.0), found(376.0)]}, REPRODUCED),
    ("swcaffe_10", {}, {"fitted": [found(715.0), found(550.0), found(300.0)]}, SHAPE),
    ("numa_caffe_3", {}, {"SB": found(1.4), "AMD": found(1.6)}, REPRODUCED),
    ("numa_caffe_3", {}, {"SB": found(1.2), "AMD": found(1.1)}, SHAPE),
    ("numa_caffe_3", {}, {"SB": found(1.2), "AMD": found(1.1, 0.9)}, INCONCLUSIVE),
    ("numa_caffe_8", {"accuracy": WAYS, "differences": {"4 ranks": 1e-6}}, {}, REPRODUCED),
    ("numa_caffe_8", {"accuracy": WAYS | {"4 ranks": 88.7}, "differences": {"4 ranks": 1e-6}}, {}, DIFFERS),
    ("numa_caffe_8", {"accuracy": WAYS, "differences": {"4 ranks": 2e-5}}, {}, DIFFERS),
    ("numa_caffe_9", {}, {"most": {"BVLC": found(13.0), "Intel": found(2.5)}}, REPRODUCED),
    ("numa_caffe_9", {}, {"most": {"BVLC": found(9.0), "Intel": found(2.5)}}, SHAPE),
    ("numa_caffe_9", {}, {"most": {"BVLC": found(12.0, 8.0, 16.0), "Intel": found(2.5)}}, INCONCLUSIVE),
    ("numa_caffe_12", {}, {"conv1": found(1.4), "conv2": found(2.8), "conv3": found(1.2)}, REPRODUCED),
    ("numa_caffe_12", {}, {"conv1": found(1.4), "conv2": found(2.8, 2.0), "conv3": found(1.2)}, SHAPE),
    ("numa_caffe_12", {}, {"conv1": found(1.7), "conv2": found(1.0), "conv3": found(1.0)}, DIFFERS),
    ("parax_6", {}, {"ResNet-50": found(1.0), "LSTM": found(1.2, 1.1, 1.4)}, REPRODUCED),
    ("parax_6", {}, {"ResNet-50": found(1.0), "LSTM": found(1.2, 1.1, 2.4)}, INCONCLUSIVE),
    ("parax_6", {}, {"ResNet-50": found(1.6), "LSTM": found(1.2)}, DIFFERS),
    ("parax_11", GAINS, {"inference": found(1.38), "training": found(1.33)}, SHAPE),
    ("parax_11", GAINS, {"inference": found(2.0), "training": found(1.33)}, REPRODUCED),
    ("parax_13", {}, {"a net": [1.0, 1.2, 1.3, 1.31]}, INCONCLUSIVE),
    ("parax_13", {}, {"a net": [1.0, 1.2, 1.3, 1.9]}, REPRODUCED),
    ("parax_13", {}, {"a net": [1.0, 1.2, 1.9, 1.3]}, DIFFERS),
    ("parax_15", {"ms": UPDATE}, {}, REPRODUCED),
    ("parax_15", {"ms": UPDATE | {"ring": [3.0] * 6 + [1.2]}}, {}, SHAPE),
    ("parax_15", {"ms": UPDATE | {"ring": [3.0] * 6 + [0.9]}}, {}, DIFFERS),
    ("parax_18", {}, {"3584": found(242.0), "1792": found(124.0)}, REPRODUCED),
    ("parax_18", {}, {"3584": found(195.0, 190.0), "1792": found(124.0)}, INCONCLUSIVE),
    ("parax_18", {}, {"3584": found(180.0), "1792": found(124.0)}, DIFFERS),
    ("parax_43", {"same rate": [DIGITS[0], DIGITS[2]], "rate times n": DIGITS[:2]}, {}, SHAPE),
    ("parax_43", {"same rate": [DIGITS[0], [[96.5, 0.1]]], "rate times n": DIGITS[:2]}, {}, DIFFERS),
    ("parax_43", {"same rate": DIGITS[:2], "rate times n": [DIGITS[0], DIGITS[0]]}, {}, REPRODUCED),
    ("singlecaffe_9", {}, {"least": MNIST}, REPRODUCED),
    ("singlecaffe_9", {}, {"least": MNIST | {"allreduce": found(0.97)}}, INCONCLUSIVE),
    ("singlecaffe_9", {}, {"least": dict.fromkeys(MNIST, found(0.5))}, DIFFERS),
    ("singlecaffe_10", {}, {"past": found(1.7), "ratios": {"RMSProp": [0.98]}}, DIFFERS),
    ("singlecaffe_10", {}, {"past": found(0.93), "ratios": {"RMSProp": [0.9]}}, REPRODUCED),
    ("singlecaffe_10", {}, {"past": found(0.98), "ratios": {"RMSProp": [0.9]}}, INCONCLUSIVE),
]


@pytest.mark.parametrize(("name", "measured", "modelled", "verdict"), CASES)
def test_a_verdict_follows_from_the_numbers(name: str, measured: dict, modelled: dict, verdict: str) -> None:
    assert module(name).FIGURE.judge(measured, modelled).verdict == verdict


def test_two_threads_that_a_model_does_not_meet_leave_its_best_gain_inconclusive() -> None:
    figure = module("singlecaffe_6")
    training = {figure.label(name, n): 1.0 / n for name in ("ReLU", "Sigmoid", "BN") for n in (1, 2)}
    for gain, error, verdict in ((17.0, 0.3, INCONCLUSIVE), (17.0, 0.05, REPRODUCED), (4.0, 0.3, SHAPE)):
        judged = figure.FIGURE.judge({"training": training}, {"best": found(gain), "error": error})
        assert judged.verdict == verdict


def test_the_first_two_convolutions_and_the_order_of_falls_decide() -> None:
    layers = module("swcaffe_9")
    vgg = {"conv1_1": 4.0, "conv1_2": 3.0, "conv2_1": 2.0}
    for conv2, verdict in ((2.5, REPRODUCED), (1.9, SHAPE)):
        modelled = {"AlexNet": {"conv1": 3.0, "conv2": conv2, "conv3": 2.0}, "VGG-16": vgg}
        assert layers.FIGURE.judge({}, modelled).verdict == verdict
    loads = module("numa_caffe_5")
    lower = {net: fall - 5 for net, fall in loads.TABLE_5["NUMA"].items()}
    for numa, verdict in ((loads.TABLE_5["NUMA"], REPRODUCED), (lower, SHAPE), (dict.fromkeys(lower, 10.0), DIFFERS)):
        assert loads.FIGURE.judge({}, {"NUMA": numa, "Intel": dict.fromkeys(lower, 20.0)}).verdict == verdict


def test_a_roofline_that_has_the_paper_s_ratios_would_reproduce_them() -> None:
    figure = module("swcaffe_8")
    for factor, verdict in ((1.0, REPRODUCED), (0.5, DIFFERS)):
        rates = figure.TABLE_3 | {"SW26010": {net: factor * r for net, r in figure.TABLE_3["SW26010"].items()}}
        assert figure.FIGURE.judge({}, {"rates": rates, "operations": {}}).verdict == verdict
