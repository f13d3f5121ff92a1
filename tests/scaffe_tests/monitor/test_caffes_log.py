"""The log of a real run, read by the rules of Caffe's own tools."""

import logging
import re
import subprocess
import sys
from datetime import datetime, timedelta

import nets
import pytest
from caffe_log import parse, time_of
from conftest import environment

from scaffe.monitor.log import GlogFormatter

GLOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \w+\.py:\d+\] \S*")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The lines of ten iterations of LeNet with displays, tests and snapshots."""
    folder = tmp_path_factory.mktemp("log")
    nets.write_images(folder / "db")
    fields = {
        "display": 2, "max_iter": 10, "test_iter": [2], "test_interval": 5, "snapshot": 5,
        "base_lr": 0.01, "lr_policy": "step", "gamma": 0.1, "stepsize": 4,
    }  # fmt: skip
    solver = nets.write_solver(folder, nets.lenet(folder / "db"), **fields)
    command = [sys.executable, "-m", "scaffe", "train", "--solver", solver]
    run = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=900, check=True)
    assert run.stdout == ""
    return run.stderr.splitlines()


def test_every_line_has_glogs_prefix(log):
    assert [line for line in log if not GLOG_LINE.match(line)] == []


def test_times_are_local_and_rise(log):
    now = datetime.now()
    times = [time_of(line, now.year) for line in log]
    assert times == sorted(times)
    assert min(abs(now - times[-1]), abs(now - times[-1].replace(year=now.year - 1))) < timedelta(hours=1)


def test_a_thread_that_writes_its_line_late_has_the_time_of_writing():
    records = [logging.makeLogRecord({"levelname": "INFO", "msg": "%s", "args": (thread,)}) for thread in "ab"]
    lines = [GlogFormatter().format(record) for record in reversed(records)]
    assert lines == sorted(lines) and lines[0].endswith("] b")


def test_the_train_rows_are_found(log):
    train, _ = parse(log)
    assert [row["NumIters"] for row in train] == [0, 2, 4, 6, 8]
    assert all(set(row) == {"NumIters", "Seconds", "LearningRate", "accuracy", "loss"} for row in train)
    # The rate of a display follows its outputs, so that a row has that of the display before.
    assert [row["LearningRate"] for row in train[1:]] == pytest.approx([0.01, 0.01, 0.001, 0.001])


def test_the_test_rows_are_found(log):
    _, test = parse(log)
    assert [row["NumIters"] for row in test] == [0, 5, 10]
    assert all(0 <= row["accuracy"] <= 1 for row in test)
    assert test[-1]["loss"] < test[0]["loss"]


def test_the_loss_of_a_display_is_that_of_the_output(log):
    train, _ = parse(log)
    shown = [float(found[1]) for line in log if (found := re.search(r"Iteration \d+.*, loss = (\S+)$", line))]
    assert shown[:-1] == [row["loss"] for row in train]  # the last one is that of the end, without outputs
