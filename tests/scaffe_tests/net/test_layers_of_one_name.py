"""Layers of one name, as in Caffe's mnist_autoencoder: all that goes by a layer's name keeps them apart."""

from __future__ import annotations

import json

import nets
import numpy as np
import pytest
from over_ranks import net_of

from scaffe.errors import NetError, WeightsError
from scaffe.net.graph import labels
from scaffe.proto.files import read_weights
from scaffe.simulation.layer_times import of_profile
from scaffe.tools import benchmark
from scaffe.tools.work import layer_works
from scaffe.training import about, replay
from scaffe.training.solver import Solver

INPUT = "layer { name: 'in' type: 'Input' top: 'x' top: 't' input_param { shape { dim: 4 dim: 3 } } }\n"
FILL = "num_output: 3 weight_filler { type: 'xavier' }"
NET = f"""{INPUT}
layer {{ name: 'a' type: 'TanH' bottom: 'x' top: 'h' }}
layer {{ name: 'a' type: 'InnerProduct' bottom: 'h' top: 'y' inner_product_param {{ {FILL} }} }}
layer {{ name: 'drop' type: 'Dropout' bottom: 'y' top: 'one' }}
layer {{ name: 'drop' type: 'Dropout' bottom: 'y' top: 'other' }}
layer {{ type: 'Dropout' bottom: 'y' top: 'third' }}
layer {{ type: 'Dropout' bottom: 'y' top: 'fourth' }}
layer {{ name: 'loss' type: 'SigmoidCrossEntropyLoss' bottom: 'y' bottom: 't' top: 'entropy' }}
layer {{ name: 'loss' type: 'EuclideanLoss' bottom: 'y' bottom: 't' top: 'distance' }}
layer {{ name: 'a' type: 'Power' bottom: 'y' top: 'z' }}
"""


@pytest.fixture
def net():
    built = net_of(NET)
    rng = np.random.default_rng(3)
    built.blobs["x"].data[...] = rng.standard_normal((4, 3))
    built.blobs["t"].data[...] = rng.uniform(size=(4, 3))
    return built


def test_names_are_caffes_and_a_dict_has_the_last_layer_of_a_name(net):
    names = [name for name in net._layer_names if not name.endswith("split")]
    assert names == ["in", "a", "a", "drop", "drop", "", "", "loss", "loss", "a"]
    assert net.layer_dict["loss"].type == "EuclideanLoss"
    assert net.layer_dict["a"].type == "Power"
    assert net.top_names["loss"] == ["distance"]
    assert {name: [blob.shape for blob in blobs] for name, blobs in net.params.items()} == {"a": [(3, 3), (3,)]}


def test_start_and_end_name_the_first_layer_of_a_name(net):
    assert list(net.forward(end="a")) == ["h"]
    assert list(net.forward(end="loss")) == ["entropy"]


def test_both_losses_count(net):
    net.forward()
    assert net.loss() == pytest.approx(float(net.blobs["entropy"].data + net.blobs["distance"].data))


def test_a_loss_that_is_not_finite_is_not_hidden_by_another_of_its_name(net):
    net.forward()
    net.blobs["entropy"].data[...] = np.nan
    assert net.suspects() == ["loss"]
    net.blobs["entropy"].data[...] = 1
    net.blobs["distance"].data[...] = np.nan
    assert net.suspects() == ["loss#2"]


def test_layers_of_one_name_draw_different_random_numbers(net):
    net.forward()
    dropped = [net.blobs[name].data == 0 for name in ("one", "other", "third", "fourth")]
    for i, one in enumerate(dropped):
        assert not any((one == other).all() for other in dropped[:i])


@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_weights_go_to_the_layer_that_has_parameters(net, tmp_path, suffix):
    path = tmp_path / f"w.caffemodel{suffix}"
    net.save(path)
    other = net_of(NET, seed=1)
    other.copy_from(path)
    assert np.array_equal(other.params["a"][0].data, net.params["a"][0].data)
    alone = net_of(
        INPUT + f"layer {{ name: 'a' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param {{ {FILL} }} }}"
    )
    alone.copy_from(path)
    assert np.array_equal(alone.params["a"][0].data, net.params["a"][0].data)


def test_weights_of_two_layers_of_one_name_are_refused(net, tmp_path):
    net.save(tmp_path / "w.caffemodel")
    stored = read_weights(tmp_path / "w.caffemodel")
    for field in ("sealed", "checksum"):  # a file that another program wrote
        stored.ClearField(field)
    stored.layer.add().CopyFrom(next(layer for layer in stored.layer if layer.blobs))
    (tmp_path / "twice.caffemodel").write_bytes(stored.SerializeToString())
    with pytest.raises(WeightsError, match="two layers with parameters are called 'a'"):
        net.copy_from(tmp_path / "twice.caffemodel")


def test_a_profile_has_the_times_of_each(net, tmp_path):
    times = benchmark.measure(net, 1)
    times.forward[:] = range(1, 1 + len(net.layers))
    replay.profile(net, times).save(tmp_path / "p.json")
    rows = [row["name"] for row in json.loads((tmp_path / "p.json").read_text())["layers"]]
    assert len(set(rows)) == len(rows) == len(layer_works(net)) == len(net.layers)
    seconds = of_profile(net, replay.load(tmp_path / "p.json")).forward
    assert np.allclose(seconds, 1e-3 * np.array(times.forward))


def test_a_drawn_graph_has_a_node_for_each(net):
    nodes = about.nodes(about.without_splits(net.param))
    assert [node.name for node in nodes] == ["in", "a", "a#2", "drop", "drop#2", "", "#2", "loss", "loss#2", "a#3"]
    assert nodes[-1].inputs == ["a#2"]


def test_the_first_convolutions_filters_are_drawn():
    filters = "convolution_param { num_output: 2 kernel_size: 2 }"
    wider = f"layer {{ name: 'wider' type: 'Deconvolution' bottom: 'x' top: 'wide' {filters} }}"
    conv = wider + f"layer {{ name: 'a' type: 'Convolution' bottom: 'wide' top: 'y' {filters} }}"
    image = "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 1 dim: 4 dim: 4 } } }"
    net = net_of(image + conv + "layer { name: 'a' type: 'ReLU' bottom: 'y' top: 'y' }")
    assert list(about.first_filters(net)) == ["filters/a"]


def test_labels_are_unique_whatever_the_names():
    layers = net_of(INPUT + "".join(f"layer {{ name: '{name}' type: 'ReLU' bottom: 'x' top: 'x' }}" for name in "abba"))
    layers.param.layer[1].name = "a#2"
    assert labels(layers.param.layer) == ["in", "a#2", "b", "b#2", "a"]
    layers.param.layer[2].name = "a"
    assert labels(layers.param.layer) == ["in", "a#2", "a", "b", "a#3"]


@pytest.mark.parametrize("name", ["a", ""])
def test_a_name_that_two_layers_with_parameters_have_is_refused(name):
    ip = f"layer {{ name: '{name}' type: 'InnerProduct' bottom: 'x' top: '%s' inner_product_param {{ {FILL} }} }}"
    called = f"are called '{name}'" if name else "have no name"
    said = rf"2 layers with parameters {called} \(InnerProduct with top 'y', InnerProduct with top 'z'\)"
    with pytest.raises(NetError, match=f"{said}; give each a name of its own"):
        net_of(INPUT + ip % "y" + ip % "z")


def two_sources(folder):
    """Return a solver whose two data layers, of one name, read at different places."""
    net = nets.softmax_regression(folder / "db")
    at = net.index('layer {\n  name: "ip"')
    second = net[net.index("layer {") : at].replace('top: "data" top: "label"', 'top: "data2" top: "label2"')
    second = second.replace("batch_size", "rand_skip: 9 batch_size")
    quiet = 'layer { name: "images" type: "Silence" bottom: "data2" bottom: "label2" }\n'
    return Solver(nets.solver_with(net[:at] + second + quiet + net[at:], snapshot_prefix=str(folder / "snap")))


def test_a_snapshot_keeps_the_place_of_each_data_layer_of_a_name(tmp_path):
    nets.write_images(tmp_path / "db", 20, (1, 4, 4))
    made = two_sources(tmp_path)
    made.step(3)
    path = made.snapshot()
    places = [layer.position for layer in made.net.data_layers()]
    assert places[0] != places[1]
    made.close()
    again = two_sources(tmp_path)
    again.restore(path)
    assert [layer.position for layer in again.net.data_layers()] == places
    again.close()
