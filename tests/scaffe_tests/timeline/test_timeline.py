"""Timelines of one rank: what is kept, what is written, and what `scaffe timeline` says to files that are none."""

import json
import sys
from unittest.mock import Mock

import bad_input
import pytest
import traces
from PIL import Image

from scaffe.cli import main
from scaffe.errors import SnapshotError
from scaffe.monitor.spans import ITERATION, WAIT
from scaffe.net.net import Net
from scaffe.timeline.timeline import LIMIT, TOTAL, Timeline, limit
from scaffe.timeline.trace import read_trace
from scaffe.training.solver import Solver


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return bad_input.trainable(tmp_path, monkeypatch)


@pytest.fixture
def refused(folder, capsys):
    return bad_input.Refused(folder, capsys)


def test_without_a_timeline_nothing_stands_between(folder):
    solver = Solver("solver.prototxt")
    assert not {"forward_layer", "backward_layer"} & set(vars(solver.net))
    assert "average" not in vars(solver.parts.statistics)
    assert solver.parts.workflow.propagate.meter.note is solver.parts.workflow.aggregate.meter.note is None
    solver.close()


def test_train_writes_what_timeline_reads(folder, capsys):
    assert main(bad_input.train("--timeline", "t.json")) == 0
    capsys.readouterr()
    assert main(["timeline", "t.json"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("1 rank(s), 4 iteration(s), ")
    assert [event["name"] for event in json.loads((folder / "t.json").read_text())["traceEvents"]][0] == "process_name"


def test_a_run_that_fails_leaves_its_timeline(folder, capsys, monkeypatch):
    backward = Net.backward_layer

    def fail(net, i):
        if net.context.batch_number == 2:
            raise ValueError("no more gradients")
        backward(net, i)

    monkeypatch.setattr(Net, "backward_layer", fail)
    assert main(bad_input.train("--timeline", "t.json")) == 1
    assert "no more gradients" in capsys.readouterr().err
    [rank] = read_trace("t.json").ranks.values()
    assert sum(span.kind == ITERATION for span in rank.spans) == 2


def test_a_timeline_that_cannot_be_written_hides_no_failure(folder, capsys, monkeypatch):
    bad_input.edit("solver.prototxt", "base_lr: 0.01", "base_lr: 1e38")
    monkeypatch.setattr("scaffe.timeline.trace.write_atomically", Mock(side_effect=SnapshotError("the disk is full")))
    assert main(bad_input.train("--timeline", "t.json")) == 2
    told = capsys.readouterr().err
    assert "the disk is full" in told and "scaffe: layer 'loss': the loss is not finite" in told


def test_the_reader_thread_has_a_track_of_its_own(folder):
    assert main(bad_input.train("--timeline", "t.json", "--reader-threads", "1")) == 0
    [rank] = read_trace("t.json").ranks.values()
    reading = [span for span in rank.spans if span.kind in ("read", "transform")]
    assert {span.track for span in reading} == {"reader images"}
    assert {span.kind for span in reading} == {"read", "transform"}
    assert all(before.end <= after.begin + 1e-9 for before, after in zip(reading, reading[1:], strict=False))


def test_parameters_are_the_same_with_and_without(folder):
    assert main(bad_input.train()) == 0
    plain = (folder / "snap_iter_4.caffemodel").read_bytes()
    assert main(bad_input.train("--timeline", "t.json")) == 0
    assert (folder / "snap_iter_4.caffemodel").read_bytes() == plain


def numbered(timeline, iterations):
    """Let a timeline see iterations of two waits each."""
    for k in range(iterations):
        wait = timeline.timed(WAIT, 0, lambda: None, "loss")
        timeline.timed(ITERATION, k, lambda wait=wait: (wait(), wait()))()


def test_only_iterations_that_are_kept_whole_are_shown():
    timeline = Timeline(limit=8)
    numbered(timeline, 5)
    # 15 spans: kept are the last of iteration 2's waits, itself, and all of 3 and 4.
    assert [span.name for span in timeline.spans()] == 2 * ["loss"] + ["iteration 3"] + 2 * ["loss"] + ["iteration 4"]


def test_nothing_is_shown_where_no_iteration_fits():
    timeline = Timeline(limit=2)
    numbered(timeline, 5)
    assert timeline.spans() == []


def test_what_happens_between_iterations_is_not_shown():
    timeline = Timeline()
    numbered(timeline, 1)
    timeline.timed(WAIT, 0, lambda: None, "loss")()
    assert len(timeline.spans()) == 3


def test_the_spans_of_many_ranks_are_bounded_together():
    assert limit(1) == limit(20) == LIMIT
    assert all(limit(ranks) * ranks <= TOTAL for ranks in (20, 21, 160, 1000))


@pytest.mark.parametrize(
    ("path", "reason"),
    [("none/t.json", "no such folder: none"), ("db", "is a folder; name a file")],
)
def test_a_path_that_cannot_be_written_is_told_before_training(refused, path, reason):
    assert reason in refused(*bad_input.train("--timeline", path))


BAD = {
    "empty": ("", "empty"),
    "text": ("hello", "not a timeline: no JSON at line 1"),
    "cut": ('{"traceEvents": [\n{"ph": "X"', "not a timeline: no JSON at line 2"),
    "list": ("[1, 2]", "not a timeline that scaffe train --timeline wrote"),
    "other": ('{"traceEvents": [{"ph": "B", "pid": "x"}], "otherData": {}}', "not a timeline that scaffe train"),
    "foreign run": (
        '{"traceEvents": [], "otherData": {"run": {"workflow": "X"}, "buckets": {}}}',
        "not a timeline that",
    ),
    "no spans": ('{"traceEvents": [], "otherData": {"run": {}, "buckets": {}}}', "holds no iteration"),
}


@pytest.mark.parametrize("content", BAD)
def test_files_that_are_no_timelines(refused, folder, content):
    text, reason = BAD[content]
    (folder / "t.json").write_text(text)
    assert refused("timeline", "t.json").startswith(f"scaffe: t.json: {reason}")


def test_binary_and_missing_files(refused, folder):
    (folder / "t.json").write_bytes(b"\xff\xfe\x00")
    assert refused("timeline", "t.json") == "scaffe: t.json: not a timeline, but a binary file"
    assert refused("timeline", "none.json") == "scaffe: none.json: no such file or directory"


def test_an_unknown_picture_format(refused, folder):
    traces.write(folder / "t.json", traces.root())
    assert "unknown format 'bmp'; known: png svg pdf" in refused("timeline", "t.json", "--plot", "p.bmp")


def test_a_picture_without_matplotlib(refused, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    traces.write(folder / "t.json", traces.root())
    assert "pip install 'scaffe[plot]'" in refused("timeline", "t.json", "--plot", "p.png")


def test_a_picture_shows_the_typical_iteration(folder, capsys):
    pytest.importorskip("matplotlib")
    from scaffe.timeline import plot
    from scaffe.timeline.overlap import summarise

    long = [traces.span("iteration", "iteration 2", 500, 900)]
    ranks = [[*traces.root(), *traces.root(200, 1), *long]] * 2
    path = traces.write(folder / "t.json", *ranks)
    assert main(["timeline", str(path), "--plot", "p.png"]) == 0
    with Image.open("p.png") as picture:
        assert picture.size[0] == 14 * 150
    figure = plot.draw(summarise(read_trace(path)))
    [axes] = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[:2] == ["rank 0 on node0", "main"]
    assert labels.count("aggregation, lane 1") == 2
    assert axes.get_title(loc="left") in ("iteration 0, SC-OBR", "iteration 1, SC-OBR")
