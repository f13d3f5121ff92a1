"""The benchmark of a net and that of the engines: what is counted and printed, not how fast it is."""

import re
import subprocess
import sys
from pathlib import Path

from both_engines import build

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


def test_the_benchmark_prints_its_table():
    command = [sys.executable, str(ROOT / "jobs/bench/engine.py"), "--nets", "lenet", "--rounds", "1"]
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    assert re.search(r"^lenet +64 .* of \d+$", done.stdout, re.M)


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
