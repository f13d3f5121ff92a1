"""test, extract-features, classify and time by several instances: the bits of one, also where batches don't divide."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import nets
import numpy as np
import pytest
from conftest import environment
from PIL import Image

import scaffe
from readers import encode, write_lmdb
from scaffe.cli import main

pytestmark = pytest.mark.mpi_skip
BATCH, BATCHES = 4, 5  # of 10 records
COUNTS = ["2", "3", "8"]  # of 8 instances three have no batch
SHARED = "--instances {} --oversubscribe --threads 1"
TEST = "test --model net.prototxt --weights w.caffemodel --iterations"
NOISE = """
layer { name: "noise" type: "DummyData" top: "noise"
  dummy_data_param { shape { dim: 4 } data_filler { type: "gaussian" } } }
layer { name: "kept" type: "HDF5Output" bottom: "noise" bottom: "label" hdf5_output_param { file_name: "noise.h5" } }
"""
DEPLOY = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 3 dim: 1 dim: 28 dim: 28 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "gaussian" std: 0.001 } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""

Run = Callable[[str], str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command, which must succeed, and returns what it logs and prints.

    The working directory has a net, its weights and its data, and a deploy net with two images.
    """
    monkeypatch.chdir(tmp_path)
    nets.write_images(tmp_path / "db", 10)
    Path("net.prototxt").write_text(nets.lenet("db", BATCH))
    net = scaffe.Net("net.prototxt", scaffe.TEST)
    net.save("w.caffemodel")
    net.close()

    def command(line: str) -> str:
        assert main(line.split()) == 0
        captured = capfd.readouterr()
        return captured.out + captured.err

    return command


def said(log: str) -> list[str]:
    """Return the log's lines without time and place, from the first batch on."""
    lines = [line.partition("] ")[2] for line in log.splitlines()]
    return [line for line in lines if re.match(r"Batch|Loss|accuracy|loss", line)]


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_a_test_logs_the_same_scores(run: Run, engine: str) -> None:
    score = f"{TEST} {BATCHES} --engine {engine} --threads 1"
    alone = said(run(score))
    assert len(alone) == 2 * BATCHES + 3
    for count in COUNTS:
        assert said(run(f"{score} {SHARED.format(count)}")) == alone


@pytest.mark.parametrize("form", ["lmdb", "npy"])
def test_extracted_features_have_the_same_bytes(run: Run, form: str) -> None:
    extract = f"extract-features w.caffemodel net.prototxt pool1,ip2,loss {{0}}a,{{0}}b,{{0}}c {BATCHES} {form}"
    run(extract.format("one") + " --threads 1")
    for count in COUNTS:
        run(f"{extract.format(count)} {SHARED.format(count)}")
        for name in "abc":
            inside = "data.mdb" if form == "lmdb" else ""
            assert Path(f"{count}{name}", inside).read_bytes() == Path(f"one{name}", inside).read_bytes()


def test_classify_prints_the_same(run: Run) -> None:
    Path("deploy.prototxt").write_text(DEPLOY)
    scaffe.Net("deploy.prototxt", scaffe.TEST).save("d.caffemodel")
    rng = np.random.default_rng(0)
    for name in ("a.png", "b.png"):  # with ten crops of each 7 batches, the last of which is not full
        Image.fromarray(rng.integers(0, 256, (33, 35), np.uint8)).save(name)
    line = "classify a.png b.png --model deploy.prototxt --weights d.caffemodel --gray --images-dim 30,30 --threads 1"
    alone = printed(run(line))
    assert len(alone) == 12
    for count in COUNTS:
        assert printed(run(f"{line} {SHARED.format(count)}")) == alone


def printed(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(("-----", "0."))]


def test_layers_draw_the_batchs_numbers_and_write_a_file_for_each_instance(run: Run) -> None:
    h5py = pytest.importorskip("h5py")
    Path("net.prototxt").write_text(nets.lenet("db", BATCH) + NOISE)
    score = f"{TEST} {BATCHES} --threads 1"
    run(score)
    with h5py.File("noise.h5") as file:
        alone = file["data"][()]
    run(f"{score} {SHARED.format(3)}")
    found = np.full_like(alone, np.nan)
    for instance in range(3):
        with h5py.File(f"noise.rank{instance}of3.h5") as file:
            found[file["row"][()]] = file["data"][()]
    np.testing.assert_array_equal(found, alone)


def test_what_layers_say_is_logged_once(run: Run) -> None:
    text = nets.lenet("db", BATCH).replace('type: "ReLU"', 'type: "ReLU" relu_param { engine: CAFFE }')
    Path("net.prototxt").write_text(text)
    log = run(f"{TEST} 2 {SHARED.format(3)}")
    assert log.count("computes in numpy: it says engine: CAFFE") == 1
    assert [int(n) for n in re.findall(r"instance (\d): domain \d+, core", log)] == [0, 1, 2]


def test_all_instances_are_timed_at_the_same_time(run: Run) -> None:
    log = run(f"time --model net.prototxt --iterations 2 {SHARED.format(2)}")
    both, forward = map(float, re.findall(r"second of 2 instances: (\S+), forward alone (\S+)$", log, re.M)[0])
    assert forward > both > 0


@pytest.mark.parametrize("count", ["1", "auto", "numa", "core", "x:1"])
def test_all_ways_to_ask_are_taken(run: Run, count: str) -> None:
    run(f"{TEST} 1 --instances {count}")


def test_a_record_that_can_not_be_read_ends_all_and_leaves_nothing(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good = encode(np.zeros((1, 28, 28), np.uint8), 0)
    write_lmdb("db", [(b"%02d" % i, b"no datum" if i == 5 else good) for i in range(10)], replace=True)
    before = sorted(tmp_path.rglob("*"))
    for command in ("extract-features w.caffemodel net.prototxt ip2,ip1 f,g 5", f"{TEST} 5"):
        assert main(f"{command} {SHARED.format(2)}".split()) == 2
        log = capfd.readouterr().err
        assert "scaffe: instance 1 of 2: db: record '05'" in log
        assert sorted(tmp_path.rglob("*")) == before


def test_ctrl_c_ends_all_instances(run: Run) -> None:
    command = [sys.executable, "-m", "scaffe", *f"{TEST} 1000000 {SHARED.format(2)}".split()]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
    given = {"stderr": subprocess.PIPE, "text": True, "env": environment(), "preexec_fn": heard}
    with subprocess.Popen(command, **given) as process:
        try:
            while "Running for" not in process.stderr.readline():
                pass
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(900) == 130
        finally:
            process.kill()
