"""caffe_draw: pycaffe's names for drawings of nets."""

import shutil
import sys
from io import BytesIO

import pytest
from google.protobuf import text_format
from PIL import Image

import scaffe
from scaffe.models import MODELS
from scaffe.proto import LayerParameter, NetParameter
from scaffe.tools import caffe_draw as draw

NET = """
name: "little"
layer { name: "digits" type: "Data" top: "data" include { phase: TRAIN } data_param { batch_size: 64 } }
layer { name: "more" type: "Data" top: "data" include { phase: TEST } data_param { batch_size: 100 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "x" param { lr_mult: 0.5 } param { lr_mult: 0 }
  convolution_param { num_output: 20 kernel_size: 5 } }
layer { name: "relu" type: "ReLU" bottom: "x" top: "x" }
layer { name: "pool" type: "Pooling" bottom: "x" top: "p" pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "p" top: "fc" inner_product_param { num_output: 10 } }
"""


@pytest.fixture(scope="module")
def net():
    return text_format.Parse(NET, NetParameter())


def layer(text):
    return text_format.Parse(text, LayerParameter())


def labels(graph):
    """Return the texts of a pydot graph's nodes, and the labels of its edges."""
    nodes = [node for node in graph.get_nodes() if node.get_name() not in ("node", "edge", "graph")]
    edges = [edge.get("label") for edge in graph.get_edges()]
    return {node.get("label").strip('"') for node in nodes}, {label.strip('"') for label in edges} - {""}


def test_a_pydot_graph_has_the_layers_blobs_and_labels(net):
    pytest.importorskip("pydot", reason="the package pydot is not installed")
    graph = draw.get_pydot_graph(net, "LR")
    nodes, edges = labels(graph)
    assert {"data", "x", "p", "fc"} < nodes
    assert any(text.startswith("conv (Convolution)") and "+ relu (ReLU)" in text for text in nodes)
    assert edges == {"Batch 64 or Batch 100", "20", "10"}
    assert graph.get_rankdir() == "LR" and "little" in graph.get_name()


def test_a_pydot_graph_can_have_one_phase_no_labels_and_multipliers(net):
    pytest.importorskip("pydot", reason="the package pydot is not installed")
    graph = draw.get_pydot_graph(net, "TB", label_edges=False, phase=scaffe.TEST, display_lrm=True)
    nodes, edges = labels(graph)
    assert not edges
    assert "more (Data)" in nodes and not any("digits" in text for text in nodes)
    assert any("lr mult 0.5, 0" in text for text in nodes) and any("lr mult 1" in text for text in nodes)


def test_the_edges_of_a_phase_have_its_labels(net):
    pytest.importorskip("pydot", reason="the package pydot is not installed")
    assert labels(draw.get_pydot_graph(net, "LR", phase=scaffe.TRAIN))[1] == {"Batch 64", "20", "10"}


def test_a_pydot_graph_is_one_that_dot_draws():
    pytest.importorskip("pydot", reason="the package pydot is not installed")
    if not shutil.which("dot"):
        pytest.skip("graphviz's program dot is not installed")
    odd = r"say \"{hi}\" : <b> \\n"
    net = text_format.Parse(NET.replace('"fc"', f'"{odd}"').replace('"little"', f'"{odd}"'), NetParameter())
    svg = draw.get_pydot_graph(net, "LR", display_lrm=True).create(format="svg").decode()
    assert svg.count("<polygon") > 8 and "say &quot;{hi}&quot; : &lt;b&gt; \\n" in svg


def test_without_pydot_its_extra_is_named(net, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydot", None)
    with pytest.raises(scaffe.ScaffeError, match=r"pydot: pip install 'scaffe\[draw\]'"):
        draw.get_pydot_graph(net, "LR")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_net_is_drawn_in_graphvizs_language(name):
    pytest.importorskip("graphviz", reason="the package graphviz is not installed")
    net = MODELS[name].train_val()
    text = draw.draw_net(net, "LR", "raw").decode()
    assert text.count("octagon") == len({blob for layer in net.layer for blob in (*layer.bottom, *layer.top)})


def test_a_picture_is_bytes_or_a_file(net, tmp_path):
    pytest.importorskip("graphviz", reason="the package graphviz is not installed")
    if not shutil.which("dot"):
        pytest.skip("graphviz's program dot is not installed")
    with Image.open(BytesIO(draw.draw_net(net, "LR"))) as picture:
        assert picture.format == "PNG" and picture.width > picture.height
    draw.draw_net_to_file(net, tmp_path / "net.svg", "TB", scaffe.TRAIN, display_lrm=True)
    assert "lr mult 0.5, 0" in (tmp_path / "net.svg").read_text()
    with pytest.raises(scaffe.ScaffeError, match="graphviz has no format 'bmpp'"):
        draw.draw_net(net, "LR", "bmpp")


def test_labels_of_boxes_and_edges(net):
    conv, pool, fc = net.layer[2], net.layer[4], net.layer[5]
    assert draw.get_layer_label(conv, "TB", display_lrm=True) == (
        '"conv (Convolution) kernel 5 outputs 20 lr mult 0.5, 0"'
    )
    assert draw.get_layer_label(pool, "LR") == r'"pool (AVE Pooling)\nkernel 2, stride 2"'
    assert [draw.get_edge_label(one) for one in (net.layer[0], conv, pool, fc)] == ["Batch 64", "20", '""', "10"]
    deconvolution = layer('type: "Deconvolution" convolution_param { num_output: 21 }')
    assert draw.get_edge_label(deconvolution) == "21"
    assert draw.get_pooling_types_dict() == {0: "MAX", 1: "AVE", 2: "STOCHASTIC"}


def test_types_have_colours():
    colours = {draw.choose_color_by_layertype(kind) for kind in ("Convolution", "Pooling", "InnerProduct", "ReLU")}
    assert len(colours) == 4
    assert draw.choose_color_by_layertype("Deconvolution") == draw.choose_color_by_layertype("Convolution")


def test_multipliers_are_those_of_weights_and_bias(net):
    assert draw.get_layer_lr_mult(net.layer[2]) == (0.5, 0)
    assert draw.get_layer_lr_mult(net.layer[5]) == (1, 1)
    assert draw.get_layer_lr_mult(layer('type: "Convolution" param { lr_mult: 3 }')) == (3, 1)
    with pytest.raises(ValueError, match="ReLU layers do not have a learning rate multiplier"):
        draw.get_layer_lr_mult(net.layer[3])
    with pytest.raises(ValueError, match="layer 'c': expected multipliers of weights and bias, got 3"):
        draw.get_layer_lr_mult(layer('name: "c" type: "Convolution" param {} param {} param {}'))
