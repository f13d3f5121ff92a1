"""Logs are read as Caffe's parse_log.py reads them, also where launchers, terminals and accidents changed them."""

import gzip
from datetime import datetime
from math import isnan

import caffe_log
import numpy as np
import pytest
from bad_input import trainable
from hypothesis import given
from hypothesis import strategies as st
from log_specimens import evaluated, head, line, shown, whole

import scaffe
from scaffe.cli import main
from scaffe.errors import LogError
from scaffe.monitor import read_log as read_log_module
from scaffe.monitor.read_log import LogReader, read_log
from scaffe.proto.files import read_solver


def read(text, year=2026):
    """Return the reader of a log after it."""
    reader = LogReader(year)
    reader.feed(text if isinstance(text, bytes) else text.encode())
    return reader


def only(text):
    [run] = read(text).runs
    return run


def losses(run):
    return dict(zip(run.train.iterations, run.train.column("loss", own=True), strict=True))


# Caffe's own log, and a run of ours.


def test_caffes_log_has_the_values_that_parse_log_reads(cases):
    path = cases / "caffe/artefacts/quick_xavier.log"
    [run] = read_log(path)
    lines = [caffe_log.without_year(one) for one in path.read_text().splitlines() if one[:1] == "I"]
    train, test = caffe_log.parse(lines)
    for rows, table in ((train, run.train), (test, run.tests[0])):
        names = [name for name in rows[0] if name not in ("NumIters", "Seconds", "LearningRate")]
        assert list(table.iterations[: len(rows)]) == [row["NumIters"] for row in rows]
        for name in names:
            np.testing.assert_array_equal(table.column(name)[: len(rows)], [row[name] for row in rows])
        np.testing.assert_allclose(table.seconds[: len(rows)], [row["Seconds"] for row in rows], atol=1e-3)
    assert list(run.train.iterations) == list(range(51)) and set(run.tests) == {0}
    assert (run.net, run.batch, run.max_iter) == ("CIFAR10_quick", 40, 50)
    expected = np.load(cases / "caffe/artefacts/quick_xavier_losses.npy")
    np.testing.assert_allclose(run.train.column("loss")[:50], expected, rtol=1e-5)


def test_our_log_has_the_values_that_python_sees(tmp_path, monkeypatch, capsys):
    trainable(tmp_path, monkeypatch)
    with open("solver.prototxt", "a") as file:
        file.write("display: 1\n")
    assert main(["train", "--solver", "solver.prototxt"]) == 0
    reader = read(capsys.readouterr().err)
    [run] = reader.runs
    param = read_solver("solver.prototxt")
    solver = scaffe.get_solver(param)
    expected, rates = [], []
    while solver.iter < param.max_iter:
        solver.step(1)
        expected.append(float(solver.net.blobs["loss"].data.reshape(-1)[0]))
        rates.append(param.base_lr)
    batch = solver.net.blobs["data"].data.shape[0]
    solver.close()
    np.testing.assert_allclose(run.train.column("loss")[: len(expected)], expected, rtol=1e-5)
    assert list(run.train.iterations[: len(expected)]) == list(range(len(expected)))
    assert (run.max_iter, run.batch) == (param.max_iter, batch * param.iter_size)
    assert reader.outcome == "done" and reader.snapshot.endswith(".solverstate")


# What rows have.


def test_rows_of_training_and_of_two_test_nets():
    tests = evaluated(0, 0.1, 3, 1) + evaluated(0, 0.2, 4, 2, net=1)
    run = only(head() + tests + shown(0, 2.5, 4, lr=1e-3) + shown(10, "nan", 8))
    assert list(run.tests) == [0, 1]
    assert run.tests[0].latest() == (0, {"accuracy": 0.1, "loss": 3})
    assert run.tests[1].latest() == (0, {"accuracy": 0.2, "loss": 4})
    assert list(run.train.seconds) == [4, 8] and list(run.train.column("lr", own=True)) == [1e-3, 0.1]
    assert losses(run)[0] == 2.5 and isnan(losses(run)[10])


def test_the_loss_of_a_test_is_the_sum_of_its_parts():
    text = head() + evaluated(0, 0.1, 3, 1) + line("    Test net output #2: aux = 5 (* 0.3 = 1.5 loss)")
    table = only(text).tests[0]
    assert list(table.column("loss", own=True)) == [4.5] and table.weighted == {"loss", "aux"}


def test_an_output_of_several_values_keeps_them_all():
    values = "".join(line(f"    Train net output #{k}: each = {k / 4}") for k in range(3))
    assert only(head() + line("Iteration 0, loss = 1") + values).train.latest()[1] == {
        "each": 0,
        "each[1]": 0.25,
        "each[2]": 0.5,
    }


def test_a_caffe_job_says_its_images_and_its_end_by_its_files():
    solver = "max_iter: 50\niter_size: 3\n" + line("Creating training net") + "  batch_size: 8\n"
    text = line("Using GPUs 0, 1") + line("Initializing solver from parameters: ") + solver + "  batch_size: 100\n"
    run = only(text + line("Solving N") + shown(0, 1, 1))
    assert (run.batch, run.max_iter) == (8 * 3 * 2, 50)


def test_values_that_rows_lack_are_nan():
    rows = [line("Iteration 10, lr = 0.5"), line("Iteration 20, loss = 1"), line("Iteration 20, lr = 0.25")]
    run = only(head() + shown(0, 2, 1) + "".join(rows) + shown(30, 1, 9, name="other"))
    np.testing.assert_array_equal(run.train.column("loss", own=True), [2, np.nan, 1, 1])
    np.testing.assert_array_equal(run.train.column("other"), [np.nan, np.nan, np.nan, 1])
    np.testing.assert_array_equal(run.train.column("loss"), [2, np.nan, np.nan, np.nan])
    assert run.train.latest() == (30, {"other": 1})


# Starts and resumptions.


def test_what_a_resumed_run_computes_again_counts():
    first = head() + shown(0, 3, 1) + shown(10, 2, 11) + evaluated(10, 0.5, 2, 11) + shown(20, 1.5, 21)
    run = only(first + head(seconds=1000, max_iter=40) + shown(10, 1.9, 1001) + shown(20, 1.4, 1011))
    assert losses(run) == {0: 3, 10: 1.9, 20: 1.4}
    assert run.tests[0].latest() == (10, {"accuracy": 0.5, "loss": 2})
    assert list(run.train.seconds) == [1, 22, 32]  # without the break
    assert (run.max_iter, run.begin) == (40, 10)


def test_an_iteration_that_comes_again_begins_a_resumption():
    run = only(head() + shown(0, 3, 1) + shown(10, 2, 11) + shown(20, 1, 21) + shown(10, 1.5, 500) + shown(20, 1, 510))
    assert run.begin == 10 and list(run.train.seconds) == [1, 21, 31]


def test_a_run_that_begins_anew_is_another():
    runs = read(whole() + head("Other", batch=7, seconds=500) + shown(0, 9, 501) + shown(10, 8, 502)).runs
    assert [run.net for run in runs] == ["Net", "Other"] and [run.batch for run in runs] == [10, 7]
    assert losses(runs[1]) == {0: 9, 10: 8} and list(runs[1].train.seconds) == [1, 2]


def test_midnight_and_the_new_year_go_on():
    start = datetime(2027, 12, 31, 23, 59, 50)
    run = only(head(start=start) + shown(0, 2, 5, start=start) + shown(10, 1, 15, start=start))
    assert list(run.train.seconds) == [5, 15]
    leap = datetime(2028, 2, 28, 12)
    text = head(start=leap) + shown(0, 2, 0, start=leap) + shown(10, 1, 2 * 86400, start=leap)
    assert list(read(text, 2028).runs[0].train.seconds) == [0, 2 * 86400]


def test_the_year_may_be_in_the_prefix():
    start = datetime(2026, 1, 1)
    text = head(year=True, start=start) + shown(0, 2, 0, year=True, start=start)
    assert list(only(text + shown(10, 1, 365 * 86400, year=True, start=start)).train.seconds) == [0, 365 * 86400]


# What happens to lines.


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\n\0\0\0"),
        lambda text: "".join(f"[1,0]<stderr>: {one}\n" for one in text.splitlines()),
        lambda text: "".join(f"0: {one}\n" for one in text.splitlines()),
        lambda text: text.replace("\n", "\n\r  5%|#   | 20/400 [00:01<00:20]\x1b[A\r", 30),
        lambda text: text + "I1120 12:01:43.000000  4711 solver.cpp:239] Iteration 200, loss = 0.0",
    ],
    ids=["returns", "NULs", "mpirun's tags", "srun's labels", "progress bar", "cut last line"],
)
def test_changed_lines_say_the_same(change):
    run, expected = only(change(whole())), only(whole())
    assert losses(run) == losses(expected) and run.tests[0].latest() == expected.tests[0].latest()
    assert list(run.train.seconds) == list(expected.train.seconds)


@pytest.mark.parametrize(
    "text",
    ["Iteration 99999999999999999999999, loss = 1", "Iteration 30, loss = 1.2.3", "Iteration -5, loss = 1",
     "Iteration 30, loss =", "Iteration ٣, loss = 1", "    Train net output #0: loss = ", "Iteration x"],
)  # fmt: skip
def test_malformed_lines_are_passed_over(text):
    assert losses(only(head() + shown(0, 2, 1) + line(text, 2) + shown(10, 1, 3))) == {0: 2, 10: 1}


@pytest.mark.parametrize(
    ("text", "outcome", "error"),
    [
        (line("Optimization Done."), "done", ""),
        (2 * "Traceback (most recent call last):\n" + 2 * "  File x\n" + "KeyError: z\n", "failed", "KeyError: z"),
        (
            "[1,0]<stderr>: Traceback (most recent call last):\n[1,0]<stderr>:   File x\n[1,0]<stderr>: KeyError: z\n",
            "failed",
            "KeyError: z",
        ),
        ("1: Traceback (most recent call last):\n1:   File x\n1: KeyError: z\n", "failed", "KeyError: z"),
        ("1: scaffe: layer 'ip': no\n", "failed", "layer 'ip': no"),
        (line("Optimization stopped early."), "stopped early", ""),
        (line("Check failed: status == 0", level="F"), "failed", "Check failed: status == 0"),
        ("scaffe: rank 1: loss is nan\nMPI_ABORT was invoked\n", "failed", "rank 1: loss is nan"),
        ("Traceback (most recent call last):\n  File x\n    y\nValueError: z\nmore\n", "failed", "ValueError: z"),
        ("prterun noticed that process rank 1 exited\n", "failed", "prterun noticed that process rank 1 exited"),
        ("scaffe: a\n" + line("Iteration 20, loss = 1"), "", ""),
    ],
)
def test_how_a_job_ends(text, outcome, error):
    reader = read(head() + shown(0, 2, 1) + text)
    assert (reader.outcome, reader.error) == (outcome, error)


def test_warnings_and_notes_are_those_of_the_last_job():
    stall, overlap = line("Stall: rank 1 waits", level="W"), line("Overlap: 50%")
    reader = read(head() + shown(0, 2, 1) + stall + overlap)
    assert reader.warnings == ["Stall: rank 1 waits"] and reader.notes == {"Overlap": "50%"}
    reader.feed(head(seconds=9).encode())
    assert reader.warnings == [] and reader.notes == {}


def test_a_line_without_end_takes_no_memory():
    reader = read(head() + shown(0, 2, 1))
    for _ in range(4):
        reader.feed(b"x" * read_log_module.CHUNK)
        assert len(reader._tail) < read_log_module.LONGEST
    reader.feed(b"\n" + shown(10, 1, 2).encode())
    assert losses(reader.runs[0]) == {0: 2, 10: 1}


# Pieces and files.


@given(st.lists(st.integers(1, 40), min_size=1))
def test_pieces_of_any_lengths_say_what_the_whole_says(lengths):
    content, reader = whole().encode(), LogReader(2026)
    for k in range(len(content)):
        part, content = content[: lengths[k % len(lengths)]], content[lengths[k % len(lengths)] :]
        reader.feed(part)
    expected = only(whole())
    assert losses(reader.runs[0]) == losses(expected) and list(reader.runs[0].train.seconds) == list(
        expected.train.seconds
    )


PIECES = st.sampled_from([part for one in whole().splitlines(keepends=True) for part in (one, one[:40], one[40:])])


@given(st.lists(PIECES | st.text(max_size=30) | st.sampled_from(["\r", "\0", "\n", "\x1b[A"]), max_size=60))
def test_no_content_fails_and_iterations_rise(pieces):
    for run in read("".join(pieces).encode("utf-8", "replace")).runs:
        for table in run.tables:
            iterations = list(table.iterations)
            assert iterations == sorted(set(iterations))
            columns = [*table.own.values(), *table.outputs.values()]
            assert all(len(column) <= len(table) for column in columns)


@given(st.binary(max_size=200))
def test_no_bytes_fail(content):
    read(content)


def test_a_gzip_file_is_read_up_to_where_it_is_cut(tmp_path):
    whole_, cut = tmp_path / "a.log.gz", tmp_path / "b.log.gz"
    whole_.write_bytes(gzip.compress(whole().encode()))
    assert losses(read_log(whole_)[0]) == losses(only(whole()))
    cut.write_bytes(whole_.read_bytes()[:-20])
    assert losses(read_log(cut)[0]).items() <= losses(only(whole())).items()


@pytest.mark.parametrize("content", [b"", b"no log\n", b"\x00\xff" * 5000, line("Batch 1, loss = 2").encode()])
def test_a_file_that_is_no_log(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(LogError, match="a: no log of training: it has no line such as"):
        read_log(tmp_path / "a")


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(LogError, match="none: no such file"):
        read_log(tmp_path / "none")
