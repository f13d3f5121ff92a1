"""A net's layers and blobs by number: pycaffe's lists, of a net with a split, a layer in place and a nameless loss."""

import pytest
from over_ranks import net_of

NET = """
force_backward: true
layer { name: 'in' type: 'Input' top: 'x' top: 't' input_param { shape { dim: 4 dim: 3 } } }
layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'h' inner_product_param { num_output: 3 } }
layer { name: 'r' type: 'ReLU' bottom: 'h' top: 'h' }
layer { name: 'l' type: 'EuclideanLoss' bottom: 'h' bottom: 't' top: 'loss' loss_weight: 2 }
layer { name: 'b' type: 'Power' bottom: 'h' top: 'again' }
layer { name: 'n' type: 'EuclideanLoss' bottom: 'again' bottom: 't' }
"""
LAYERS = ["in", "t_in_1_split", "a", "r", "h_r_0_split", "l", "b", "n"]
BLOBS = ["x", "t", "t_in_1_split_0", "t_in_1_split_1", "h", "h_r_0_split_0", "h_r_0_split_1", "loss", "again"]


@pytest.fixture
def net():
    return net_of(NET)


def test_layers_and_blobs_stand_in_the_order_of_the_prototxt(net):
    assert net._layer_names == LAYERS == list(net.layer_dict) == list(net.top_names)
    assert net._blob_names == BLOBS
    assert all(net.blobs[name] is blob for name, blob in zip(BLOBS, net._blobs, strict=True))
    assert [net.layers.index(net.layer_dict[name]) for name in LAYERS] == list(range(len(LAYERS)))
    assert [net.layers[i].type for i in (0, 1, 3)] == ["Input", "Split", "ReLU"]


def test_numbers_name_the_blobs_of_inputs_outputs_and_layers(net):
    assert [BLOBS[i] for i in net._inputs] == net.inputs == ["x", "t"]
    assert [BLOBS[i] for i in net._outputs] == net.outputs == ["loss"]
    for i, layer in enumerate(LAYERS):
        assert [BLOBS[k] for k in net._top_ids(i)] == net.top_names[layer]
        assert [BLOBS[k] for k in net._bottom_ids(i)] == net.bottom_names[layer]
    assert net._top_ids(3) == net._bottom_ids(3) == [4]
    assert net._top_ids(7) == []


def test_every_blob_has_a_weight_in_the_loss(net):
    assert net.blob_loss_weights == {name: 2.0 if name == "loss" else 0.0 for name in BLOBS}
    assert list(net.blob_loss_weights) == BLOBS
    assert net._blob_loss_weights == [0.0] * 7 + [2.0, 0.0]
