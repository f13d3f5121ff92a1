"""scaffe time, and the benchmark against PyTorch: what they print, not how fast it is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from both_engines import build

import scaffe
from scaffe import cli
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


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_time_prints_caffes_table(tmp_path, capsys, phase, engine):
    model = tmp_path / "net.prototxt"
    model.write_text(NET)
    options = ["--model", str(model), "--iterations", "2", "--phase", phase, "--engine", engine]
    assert cli.main(["time", *options]) == 0
    printed = capsys.readouterr().err
    for layer in ("data", "conv", "ip", "loss"):
        assert re.search(rf"\] +{layer}\tforward: [\d.e-]+ ms\.$", printed, re.M)
        assert re.search(rf"\] +{layer}\tbackward: [\d.e-]+ ms\.$", printed, re.M)
    for total in ("Average Forward pass", "Average Backward pass", "Average Forward-Backward", "Total Time"):
        assert re.search(rf"{total}: [\d.e+-]+ ms\.$", printed, re.M)
    assert re.search(r"Images per second: [\d.e+]+$", printed, re.M)


DEEP = 'layer { name: "deep" type: "AbsVal" bottom: "conv" top: "deep" include { min_level: 1 } }'


@pytest.mark.parametrize(
    ("own", "flags", "deep"), [("", [], False), ("", ["--level", "1"], True), ("level: 1", ["--level", "0"], False)]
)
def test_time_takes_the_levels_layers(tmp_path, capsys, own, flags, deep):
    model = tmp_path / "net.prototxt"
    model.write_text(f"state {{ {own} }} {NET} {DEEP}")
    assert cli.main(["time", "--model", str(model), "--iterations", "1", *flags]) == 0
    assert ("deep\tforward" in capsys.readouterr().err) == deep


def test_operations_are_counted_by_hand():
    net = build(NET.split("layer", 2)[0] + "layer" + "layer".join(NET.split("layer")[2:]), (4, 3, 8, 6), engine="auto")
    convolution = 2 * 4 * 6 * (6 * 4) * (1 * 3 * 3)
    inner_product = 2 * 4 * 5 * (6 * 6 * 4)
    assert benchmark.operations(net) == convolution + inner_product


def test_time_refuses_no_iterations(tmp_path, capsys):
    model = tmp_path / "net.prototxt"
    model.write_text(NET)
    assert cli.main(["time", "--model", str(model), "--iterations", "0"]) == 2
    assert "--iterations must be 1 or more, got 0" in capsys.readouterr().err


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
