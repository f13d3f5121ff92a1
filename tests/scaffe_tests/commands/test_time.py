"""scaffe time: what it prints, not how fast it is."""

import json
import re

import pytest
from both_engines import needs_bf16

from scaffe import cli

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
    assert re.search(r"Images per second forward: [\d.e+]+$", printed, re.M)


@needs_bf16
def test_time_names_number_formats_and_reorders(tmp_path, capsys):
    model = tmp_path / "net.prototxt"
    model.write_text(NET.replace("group: 3 ", ""))
    assert cli.main(["time", "--model", str(model), "--iterations", "1", "--compute", "bf16"]) == 0
    printed = capsys.readouterr().err
    assert re.search(r"\] +data\ttype: float32, x0 float32\.$", printed, re.M)
    assert re.search(r"\] +conv\ttype: bf16, conv [\w ]+\.$", printed, re.M)
    assert re.search(r"\] +conv\treorder: forward, conv\[0\] float32 to bf16[ \w]*: [\d.e-]+ ms\.$", printed, re.M)
    assert re.search(r"\] +loss\ttype: float32, loss float32\.$", printed, re.M)
    assert re.search(r"Kernels: [\d.e-]+ ms, reorders [\d.e-]+ ms\.$", printed, re.M)


DEEP = 'layer { name: "deep" type: "AbsVal" bottom: "conv" top: "deep" include { min_level: 1 } }'


@pytest.mark.parametrize(
    ("own", "flags", "deep"), [("", [], False), ("", ["--level", "1"], True), ("level: 1", ["--level", "0"], False)]
)
def test_time_takes_the_levels_layers(tmp_path, capsys, own, flags, deep):
    model = tmp_path / "net.prototxt"
    model.write_text(f"state {{ {own} }} {NET} {DEEP}")
    assert cli.main(["time", "--model", str(model), "--iterations", "1", *flags]) == 0
    assert ("deep\tforward" in capsys.readouterr().err) == deep


def test_time_refuses_no_iterations(tmp_path, capsys):
    model = tmp_path / "net.prototxt"
    model.write_text(NET)
    assert cli.main(["time", "--model", str(model), "--iterations", "0"]) == 2
    assert "--iterations must be 1 or more, got 0" in capsys.readouterr().err


def test_a_profile_has_the_seconds_of_each_layer(tmp_path):
    model, profile = tmp_path / "net.prototxt", tmp_path / "times.json"
    model.write_text(NET)
    assert cli.main(["time", "--model", str(model), "--iterations", "1", "--profile", str(profile)]) == 0
    layers = json.loads(profile.read_text())["layers"]
    assert [layer["name"] for layer in layers] == ["data", "conv", "ip", "ip_ip_0_split", "loss"]
