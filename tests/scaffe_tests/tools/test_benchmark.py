"""The benchmark of a net and that of the engines: what is counted and printed, not how fast it is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from both_engines import build, needs_bf16, needs_onednn

import scaffe
from scaffe.tools import benchmark

ROOT = Path(__file__).resolve().parents[3]
NET = """
layer { name: "data" type: "DummyData" top: "x0" dummy_data_param { shape { dim: 4 dim: 3 dim: 8 dim: 6 } } }
layer {
  name: "conv" type: "Convolution" bottom: "x0" top: "conv"
  convolution_param { num_output: 6 kernel_size: 3 group: 3 weight_filler { type: "xavier" } }
}
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "loss" }
"""


def test_operations_are_counted_by_hand():
    net = build(NET.split("layer", 2)[0] + "layer" + "layer".join(NET.split("layer")[2:]), (4, 3, 8, 6), engine="auto")
    convolution = 2 * 4 * 6 * (6 * 4) * (1 * 3 * 3)
    inner_product = 2 * 4 * 5 * (6 * 6 * 4)
    assert benchmark.operations(net) == convolution + inner_product


def run_engine(*arguments: str, script: str = "engine.py") -> str:
    """Return what a benchmark of engines prints for LeNet."""
    command = [sys.executable, str(ROOT / "jobs/bench" / script), "--nets", "lenet", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=True).stdout


RATIO = r"\d+\.\d\d \([\d.]+ to [\d.]+\)"


@needs_onednn
@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_the_benchmark_prints_its_table(phase):
    printed = run_engine("--rounds", "1", "--phase", phase, "--batch", "8")
    assert re.search(rf"^1 thread\(s\), {phase}, float32; this core: \d+ GFLOP/s in float32", printed, re.M)
    assert re.search(r"^lenet +8 +[\d.]+ +[\d.]+ .*\d\.\d\d +\d+\.\d\d +\d+%", printed, re.M)


@needs_bf16
def test_the_benchmark_compares_bf16_with_float32():
    printed = run_engine("--rounds", "1", "--compute", "bf16", "--batch", "8")
    assert re.search(r"this core: \d+ GFLOP/s in bf16, \d+ GFLOP/s in float32", printed)
    assert re.search(rf"^lenet +8 +[\d.]+ +[\d.]+ +[\d.]+ +{RATIO} .*( +\d+\.\d\d){{4}} +\d+%", printed, re.M)


def test_the_benchmark_counts_operations_and_bytes():
    """Of conv2: 64 images, 50 x 8 x 8 outputs of 20 x 5 x 5 weights, from 20 x 12 x 12 values."""
    products, x, y = 2 * 64 * 50 * 8 * 8 * 20 * 5 * 5 / 1e6, 64 * 20 * 12 * 12 * 4 / 1e6, 64 * 50 * 8 * 8 * 4 / 1e6
    numbers = products, 2 * products, x + y, 2 * x + y, (x + y) / 2, x + y / 2
    found = re.search(r"^conv2 +(.*)$", run_engine("--count"), re.M)
    assert found and [float(part) for part in found[1].split()] == pytest.approx(numbers, abs=6e-3)


@needs_onednn
def test_lost_time_is_what_products_do_not_explain():
    printed = run_engine("--iterations", "1", "--all", script="lost.py")
    rows = dict(re.findall(r"^ *(\w+) .*?([-\d.]+ +[-\d.]+ +[-\d.]+) +[-\d.]+%", printed, re.M))
    assert {"Convolution", "update", "conv2", "relu1"} <= rows.keys()
    for row in rows.values():
        total, products, lost = map(float, row.split())
        assert lost == pytest.approx(total - products, abs=0.21)  # each is rounded to 0.1
    assert float(rows["relu1"].split()[1]) == 0 < float(rows["conv2"].split()[1])


def test_a_net_can_be_timed_where_it_has_no_images():
    net = build(
        'layer { name: "p" type: "InnerProduct" bottom: "x0" top: "y" inner_product_param { num_output: 2 axis: 0 } }',
        (5,),
        engine="auto",
    )
    times = benchmark.measure(net, 1)
    assert len(times.forward) == len(net.layers) == 2
    assert not any("Images" in line for line in benchmark.lines(net, times, 1))
    assert isinstance(net, scaffe.Net)
