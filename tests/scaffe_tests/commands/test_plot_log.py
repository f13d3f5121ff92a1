"""scaffe plot-log: the curves that are drawn are the logs' numbers, and so is the table."""

import csv
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from bad_input import Refused
from log_specimens import evaluated, head, line, shown, whole
from PIL import Image

from scaffe.cli import main
from scaffe.tools.log_curves import named_runs, smooth, speed


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_text(whole())
    Path("b.log").write_text(head(batch=20) + shown(0, 4, 1) + shown(10, "nan", 3) + shown(20, 3, 5))
    return tmp_path


@pytest.fixture
def refused(folder, capsys):
    return Refused(folder, capsys)


def figure(*logs, **options):
    pytest.importorskip("matplotlib")
    from scaffe.tools.plot_log import draw

    return draw(named_runs(logs), **options)


def curves(axes):
    """Return the values of a panel's curves by their labels, without those as they were logged."""
    lines = [one for one in axes.get_lines() if not one.get_label().startswith("_")]
    return {one.get_label(): (list(one.get_xdata()), list(one.get_ydata())) for one in lines}


# Pictures.


def test_panels_have_loss_outputs_and_rate():
    loss, accuracy, rate = figure("a.log", window=1).axes
    iterations = [*range(0, 100, 10), 100]
    train = [2 - k / 100 for k in iterations]
    assert curves(loss) == {
        "a, train, loss": (iterations, train),
        "a, test 0, loss": ([0, 50, 100], [2, 1.5, 1]),
    }
    assert curves(accuracy) == {"a, test 0, accuracy": ([0, 50, 100], [0, 0.5, 1])}
    assert curves(rate)["a, train, lr"][1][:10] == [0.1] * 10
    assert [axes.get_ylabel() for axes in (loss, accuracy, rate)] == ["loss", "accuracy", "learning rate"]
    assert rate.get_xlabel() == "iterations" and loss.get_shared_x_axes().joined(loss, rate)


@pytest.mark.parametrize(
    ("x", "label", "expected"),
    [("seconds", "training time in s", [1, 3, 5]), ("images", "images", [0, 200, 400])],
)
def test_other_axes(x, label, expected):
    [axes] = figure("b.log", x=x, what=["loss"]).axes
    assert axes.get_xlabel() == label and curves(axes)["b, train, loss"][0] == expected


def test_a_long_run_has_hours():
    Path("c.log").write_text(head() + shown(0, 2, 0) + shown(10, 1, 7 * 3600))
    [axes] = figure("c.log", x="seconds", what=["loss"]).axes
    assert axes.get_xlabel() == "training time in h" and curves(axes)["c, train, loss"][0] == [0, 7]


def test_a_loss_that_is_not_finite_is_a_gap_and_is_said(capsys):
    [axes] = figure("b.log", what=["loss"]).axes
    np.testing.assert_array_equal(curves(axes)["b, train, loss"][1], [4, np.nan, 3])
    assert main(["plot-log", "b.log", "--csv", "b.csv"]) == 0
    assert "b.log: train: 1 loss(es) are not finite, first in iteration 10: gaps" in capsys.readouterr().err


def test_what_is_logged_stands_behind_what_is_smoothed():
    rows = "".join(shown(k, k % 2, k) for k in range(80))
    Path("c.log").write_text(head() + rows)
    [axes] = figure("c.log", what=["loss"]).axes
    raw, mean = axes.get_lines()
    assert list(raw.get_ydata()) == [k % 2 for k in range(80)]
    np.testing.assert_allclose(mean.get_ydata()[2:78], [(2 if k % 2 == 0 else 3) / 5 for k in range(2, 78)])


@pytest.mark.parametrize("window", [1, 2, 3, 5, 8])
def test_smoothing_is_the_mean_of_the_finite_values_around(window):
    raw, half = np.array([4, np.nan, 2, 7, np.inf, 1, 3, 5]), window // 2
    for k, one in enumerate(smooth(raw, window)):
        around = raw[max(0, k - half) : k + half + 1]
        expected = around[np.isfinite(around)].mean() if np.isfinite(raw[k]) else np.nan
        np.testing.assert_allclose(one, expected)


def test_the_speed_is_in_images_where_the_batch_is_known():
    [one] = named_runs(["b.log"])
    np.testing.assert_array_equal(speed(one.run, in_images=True), [np.nan, 100, 100])
    np.testing.assert_array_equal(speed(one.run, in_images=False), [np.nan, 5, 5])
    [axes] = figure("a.log", "b.log", what=["speed"]).axes
    assert axes.get_ylabel() == "images/s" and curves(axes)["b, train, speed"][1][1:] == [100, 100]
    Path("c.log").write_text(line("Solving N") + shown(0, 1, 1) + shown(10, 1, 6))
    [axes] = figure("b.log", "c.log", what=["speed"]).axes
    assert axes.get_ylabel() == "iterations/s"
    assert [curves(axes)[f"{name}, train, speed"][1][1] for name in "bc"] == [5, 2]


def test_runs_have_colours_and_names():
    shown_ = figure("a.log", "b.log", what=["loss"])
    texts = [text.get_text() for text in shown_.legends[0].get_texts()]
    assert texts == ["a", "b", "training", "test"]
    colours = {one.get_label()[0]: one.get_color() for one in shown_.axes[0].get_lines()}
    assert len(set(colours.values())) == 2


def test_several_runs_of_a_log_are_numbered_and_equal_names_have_their_folders():
    Path("two.log").write_text(whole() + whole())
    Path("d").mkdir()
    Path("d/b.log").write_text(whole())
    assert [one.name for one in named_runs(["two.log"])] == ["two (1)", "two (2)"]
    assert [one.name for one in named_runs(["b.log", "d/b.log"])] == ["b", "d/b"]
    assert [one.name for one in named_runs(["b.log", "d/b.log"], ["x", "y"])] == ["x", "y"]


def test_a_part_of_outputs_names_draws_them_all():
    outputs = [line(f"    Test net output #{k}: top-{k} = 0.{k}") for k in (1, 5)]
    Path("c.log").write_text(head() + evaluated(0, 0.5, 1, 1) + "".join(outputs))
    [axes] = figure("c.log", what=["top"]).axes
    assert curves(axes) == {"c, test 0, top-1": ([0], [0.1]), "c, test 0, top-5": ([0], [0.5])}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["top-1", "top-5"]
    marks = {one.get_label(): one.get_marker() for one in axes.get_lines()}
    assert len(set(marks.values())) == 2


def test_test_nets_have_lines_of_their_own():
    Path("c.log").write_text(head() + evaluated(0, 0.5, 1, 1) + evaluated(0, 0.4, 2, 1, net=1) + shown(0, 1, 2))
    drawn = figure("c.log", what=["accuracy"])
    assert {one.get_label(): one.get_linestyle() for one in drawn.axes[0].get_lines()} == {
        "c, test 0, accuracy": "--",
        "c, test 1, accuracy": ":",
    }
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["c", "training", "test 0", "test 1"]


@pytest.mark.parametrize("options", [{}, {"log_scale": True}])
def test_a_run_without_a_finite_loss_is_drawn_empty(options):
    Path("c.log").write_text(head() + shown(0, "nan", 1) + shown(10, "inf", 2))
    axes = figure("c.log", what=["loss"], **options).axes[0]
    assert np.isnan(curves(axes)["c, train, loss"][1]).all()
    assert main(["plot-log", "c.log", "c.png"]) == 0


@pytest.mark.parametrize("name", ["a$x^$b", "_a", "c\x01\nd", "wide" * 30])
def test_any_name_of_a_file_is_in_the_legend(name):
    Path(f"{name}.log").write_text(whole())
    shown_ = figure(f"{name}.log", what=["loss"])
    text = shown_.legends[0].get_texts()[0].get_text()
    assert text == {"c\x01\nd": r"c\x01\nd", "wide" * 30: "wide" * 5 + "wid…" + "wide" * 6}.get(name, name)
    assert main(["plot-log", f"{name}.log", "out.svg"]) == 0
    ElementTree.parse("out.svg")


def test_a_single_iteration_has_no_fractions():
    Path("c.log").write_text(head() + shown(0, 2, 1))
    axes = figure("c.log", what=["loss"]).axes[0]
    assert all(tick == round(tick) for tick in axes.get_xticks())


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_command_writes_the_picture(suffix):
    pytest.importorskip("matplotlib")
    assert main(["plot-log", "a.log", "b.log", f"out.{suffix}", "--log-scale"]) == 0
    content = Path(f"out.{suffix}").read_bytes()
    assert {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix] == content[: 5 if suffix == "svg" else 4]
    if suffix == "png":
        with Image.open("out.png") as picture:
            assert picture.size[0] == 3.5 * 300


# The table.


def test_the_table_has_caffes_columns_and_needs_no_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot-log", "a.log", "b.log", "--csv", "out.csv", "--names", "x,y"]) == 0
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    named = ["Run", "Net", "NumIters", "Seconds", "LearningRate", "Images", "Loss"]
    assert list(rows[0]) == [*named, "loss", "accuracy"]
    assert [row["NumIters"] for row in rows if row["Run"] == "y"] == ["0", "10", "20"]
    [tested] = [row for row in rows if row["Net"] == "test 0" and row["NumIters"] == "50"]
    assert tested == dict(
        zip(rows[0], ["x", "test 0", "50", "50.500000", "0.1", "500", "1.5", "1.5", "0.5"], strict=True)
    )
    first = rows[0]
    assert [first[name] for name in ("Seconds", "LearningRate", "Loss", "accuracy")] == ["1.000000", "0.1", "2", ""]


# Refusals.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a.log", "expected the picture's name behind the logs, as in OUT.png; known: png svg pdf; got a.log"),
        ("out.png", "expected logs before the picture's name, out.png"),
        ("none.log out.png", "none.log: no such file or directory"),
        ("a.log out.png --what foo", "--what foo: no log has it; known: loss lr speed accuracy"),
        ("a.log out.png --names x,y", r"--names: expected 1 name(s), one for each log, got 2"),
        ("a.log out.png --smooth 0", "expected a number of rows, 1 or more, got '0'"),
        ("c.log out.png --x images", "c.log: its lines do not have the images of an iteration"),
    ],
)
def test_refusals(refused, words, said):
    pytest.importorskip("matplotlib")
    Path("c.log").write_text(line("Solving N") + shown(0, 1, 1))
    assert said in refused("plot-log", *words.split())


def test_a_picture_without_matplotlib(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'scaffe[plot]'" in refused("plot-log", "a.log", "out.png")
