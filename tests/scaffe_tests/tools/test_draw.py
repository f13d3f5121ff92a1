"""Drawing nets: what is in the picture, without graphviz, and its language, with the package."""

import nets
import pytest
from google.protobuf import text_format

from scaffe.proto import NetParameter
from scaffe.tools import draw

BRANCHES = """
name: "branches"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } } }
layer {
  name: "conv" type: "Convolution" bottom: "data" top: "x"
  convolution_param { num_output: 8 kernel_size: 3 stride: 2 pad: 1 group: 1 dilation: 1 }
}
layer { name: "norm" type: "BatchNorm" bottom: "x" top: "x" }
layer { name: "relu" type: "ReLU" bottom: "x" top: "x" }
layer {
  name: "one" type: "Convolution" bottom: "x" top: "a"
  convolution_param { num_output: 8 kernel_h: 1 kernel_w: 3 pad_h: 0 pad_w: 1 group: 2 }
}
layer { name: "two" type: "Pooling" bottom: "x" top: "b" pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 } }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }
layer { name: "all" type: "Pooling" bottom: "sum" top: "p" pooling_param { global_pooling: true } }
layer { name: "fc" type: "InnerProduct" bottom: "p" top: "fc" inner_product_param { num_output: 10 } }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(BRANCHES)
    return tmp_path


def planned(text=BRANCHES, phase="ALL"):
    net = text_format.Parse(text, NetParameter())
    return draw.diagram(net, phase, draw.shapes(net, phase))


def named(drawing):
    """Return the edges with layers and blobs by the first word of what they show."""
    names = {key: lines[0].split()[0] for key, (lines, _) in drawing.boxes.items()} | drawing.blobs
    return [(names[tail], names[head], label) for tail, head, label in drawing.edges]


def test_blobs_lie_between_layers_and_their_shapes_on_the_edges_to_them():
    assert named(planned()) == [
        ("data", "data", "4 x 3 x 8 x 8"),
        ("data", "conv", ""),
        ("conv", "x", "4 x 8 x 4 x 4"),
        ("x", "one", ""),
        ("one", "a", "4 x 8 x 4 x 4"),
        ("x", "two", ""),
        ("two", "b", "4 x 8 x 4 x 4"),
        ("a", "sum", ""),
        ("b", "sum", ""),
        ("sum", "sum", "4 x 8 x 4 x 4"),
        ("sum", "all", ""),
        ("all", "p", "4 x 8 x 1 x 1"),
        ("p", "fc", ""),
        ("fc", "fc", "4 x 10"),
    ]


def test_boxes_tell_types_windows_and_what_works_in_place():
    boxes = {lines[0]: lines[1:] for lines, _ in planned().boxes.values()}
    assert boxes == {
        "data (Input)": [],
        "conv (Convolution)": ["kernel 3, stride 2, pad 1", "outputs 8", "+ norm (BatchNorm)", "+ relu (ReLU)"],
        "one (Convolution)": ["kernel 1 x 3, pad 0 x 1", "outputs 8", "groups 2"],
        "two (AVE Pooling)": ["kernel 3, stride 1, pad 1"],
        "sum (Eltwise)": [],
        "all (MAX Pooling)": ["global"],
        "fc (InnerProduct)": ["outputs 10"],
    }


def test_a_phase_is_drawn_alone_or_both(tmp_path):
    nets.write_images(tmp_path / "db", 20)
    text = nets.lenet(tmp_path / "db", dropout=True)
    both, test = planned(text), planned(text, "TEST")
    assert [lines for lines, _ in both.boxes.values()][:2] == [
        ["digits (Data)", "TRAIN only"],
        ["digits (Data)", "TEST only"],
    ]
    assert [lines[0] for lines, _ in test.boxes.values()].count("digits (Data)") == 1
    assert ("loss", "loss", "1") in named(test)


def test_a_net_that_can_not_be_built_is_drawn_without_shapes():
    drawing = planned(nets.lenet("no_db"))
    assert len(drawing.boxes) == 10
    assert {label for _, _, label in named(drawing)} == {""}


def test_a_layer_in_place_on_two_bottoms_has_a_box_of_its_own():
    text = BRANCHES + 'layer { name: "scale" type: "Scale" bottom: "fc" bottom: "fc" top: "y" }'
    assert [lines[0] for lines, _ in planned(text).boxes.values()][-1] == "scale (Scale)"


def test_any_name_is_drawn_as_it_is(folder):
    graphviz = pytest.importorskip("graphviz", reason="the package graphviz is not installed")
    assert graphviz
    odd = r"say \"{hi}\" : <b>"
    (folder / "net.prototxt").write_text(BRANCHES.replace('top: "fc"', f'top: "{odd}"'))
    draw.draw_net("net.prototxt", "net.dot", "LR")
    text = (folder / "net.dot").read_text()
    assert "rankdir=LR" in text
    assert text.count(" -> ") == 14
    assert "{hi}" in text and '"<b>' not in text


def test_multipliers_of_the_learning_rate_are_drawn_when_asked_for():
    rates = "param { lr_mult: 0.5 } param { lr_mult: 0 }"
    text = BRANCHES.replace('bottom: "data" top: "x"', f'bottom: "data" top: "x" {rates}')
    net = text_format.Parse(text, NetParameter())
    assert not any("lr mult" in line for lines, _ in draw.diagram(net).boxes.values() for line in lines)
    boxes = {lines[0]: lines for lines, _ in draw.diagram(net, display_lrm=True).boxes.values()}
    assert "lr mult 0.5, 0" in boxes["conv (Convolution)"] and "lr mult 1" in boxes["fc (InnerProduct)"]
    assert boxes["all (MAX Pooling)"] == ["all (MAX Pooling)", "global"]
