"""The passes over a net's layers, against Caffe's rules on small nets."""

import pytest
from google.protobuf import text_format

from scaffe.errors import NetError
from scaffe.net.graph import LayerNode, filter_layers, followers, insert_splits, need_backward
from scaffe.proto import NetParameter, NetState


def net(text):
    return text_format.Parse(text, NetParameter())


def names(param):
    return [layer.name for layer in param.layer]


RULES = """
layer { name: 'always' }
layer { name: 'train' include { phase: TRAIN } }
layer { name: 'not_train' exclude { phase: TRAIN } }
layer { name: 'deep' include { min_level: 2 max_level: 3 } }
layer { name: 'staged' include { stage: 'a' stage: 'b' } }
layer { name: 'not_a' include { not_stage: 'a' } }
layer { name: 'either' include { phase: TRAIN } include { stage: 'a' } }
"""


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        (NetState(phase=0), ["always", "train", "not_a", "either"]),
        (NetState(phase=1), ["always", "not_train", "not_a"]),
        (NetState(phase=1, level=2), ["always", "not_train", "deep", "not_a"]),
        (NetState(phase=1, level=4), ["always", "not_train", "not_a"]),
        (NetState(phase=1, stage=["a"]), ["always", "not_train", "either"]),
        (NetState(phase=1, stage=["b", "a"]), ["always", "not_train", "staged", "either"]),
    ],
)
def test_rules_select_layers_by_phase_level_and_stage(state, kept):
    assert names(filter_layers(net(RULES), state)) == kept


def test_include_and_exclude_on_one_layer_is_an_error():
    with pytest.raises(NetError, match="'x' has both"):
        filter_layers(net("layer { name: 'x' include { phase: TRAIN } exclude { phase: TEST } }"), NetState())


def test_a_top_with_two_users_gets_a_split_with_caffes_names():
    split = insert_splits(
        net("""
        layer { name: 'data' top: 'data' top: 'label' }
        layer { name: 'ip' bottom: 'data' top: 'ip' }
        layer { name: 'loss' bottom: 'ip' bottom: 'label' top: 'loss' }
        layer { name: 'acc' bottom: 'ip' bottom: 'label' top: 'acc' }
    """)
    )
    assert names(split) == ["data", "label_data_1_split", "ip", "ip_ip_0_split", "loss", "acc"]
    assert list(split.layer[3].top) == ["ip_ip_0_split_0", "ip_ip_0_split_1"]
    assert list(split.layer[4].bottom) == ["ip_ip_0_split_0", "label_data_1_split_0"]
    assert list(split.layer[5].bottom) == ["ip_ip_0_split_1", "label_data_1_split_1"]


def test_an_in_place_layer_makes_a_new_top():
    split = insert_splits(
        net("""
        layer { name: 'data' top: 'x' }
        layer { name: 'relu' bottom: 'x' top: 'x' }
        layer { name: 'a' bottom: 'x' top: 'a' }
        layer { name: 'b' bottom: 'x' top: 'b' }
    """)
    )
    assert names(split) == ["data", "relu", "x_relu_0_split", "a", "b"]


def test_a_loss_that_is_used_again_moves_its_weight_to_the_split():
    split = insert_splits(
        net("""
        layer { name: 'data' top: 'x' }
        layer { name: 'loss' bottom: 'x' top: 'l' loss_weight: 3 }
        layer { name: 'use' bottom: 'l' top: 'y' }
    """)
    )
    assert names(split) == ["data", "loss", "l_loss_0_split", "use"]
    assert list(split.layer[1].loss_weight) == [0]
    assert list(split.layer[2].loss_weight) == [3, 0]
    assert list(split.layer[3].bottom) == ["l_loss_0_split_1"]


def test_a_bottom_that_nobody_produces_is_named_with_what_there_is():
    with pytest.raises(NetError, match=r"'ip': no layer before it produces its bottom 'x'; blobs so far: data"):
        insert_splits(net("layer { name: 'd' top: 'data' } layer { name: 'ip' bottom: 'x' top: 'ip' }"))


def node(bottoms, tops, learns=False, loss=False, **more):
    return LayerNode(bottoms, tops, learns, [loss] * len(tops), can_force=[True] * len(bottoms), **more)


def test_gradients_stop_at_the_first_learning_layer_and_at_what_reaches_no_loss():
    nodes = [
        node([], ["data", "label"]),
        node(["data"], ["a"]),
        node(["a"], ["b"], learns=True),
        node(["b"], ["side"], learns=True),  # leads nowhere
        node(["b2"], ["c"], learns=True),
        node(["c", "label"], ["loss"], loss=True),
    ]
    nodes.insert(3, node(["b"], ["b1", "b2"]))
    nodes[4].bottoms = ["b1"]
    need_backward(nodes)
    assert [n.backward for n in nodes] == [False, False, True, True, False, True, True]
    assert nodes[2].down == [False]
    assert nodes[6].down == [True, False]


def test_propagate_down_false_ends_the_gradient():
    nodes = [
        node([], ["data", "label"]),
        node(["data"], ["a"], learns=True),
        node(["a"], ["b"], learns=True, propagate_down=[False]),
        node(["b", "label"], ["loss"], loss=True),
    ]
    need_backward(nodes)
    assert [n.backward for n in nodes] == [False, False, True, True]


def test_force_backward_reaches_every_bottom_that_allows_it():
    nodes = [node([], ["data", "label"]), node(["data", "label"], ["loss"], loss=True)]
    nodes[1].can_force = [True, False]
    need_backward(nodes, force=True)
    assert nodes[1].down == [True, False]


def test_a_follower_alone_takes_the_one_top():
    split = insert_splits(
        net("""
        layer { name: "a" top: "a" }
        layer { name: "b" bottom: "a" top: "a" }
        layer { name: "c" bottom: "a" top: "c" }
        layer { name: "d" bottom: "c" top: "d" }
        layer { name: "e" bottom: "c" top: "e" top: "f" }
        layer { name: "g" bottom: "d" bottom: "e" top: "g" }
        layer { name: "h" bottom: "f" top: "h" }
        """)
    )
    layers = split.layer
    pairs = {layers[i].name: layers[j].name for i, j in followers(layers).items()}
    assert pairs == {"a": "b", "b": "c", "c": "c_c_0_split"}


def test_a_loss_is_a_user_too():
    split = insert_splits(
        net("""
        layer { name: "a" top: "a" loss_weight: 1 }
        layer { name: "b" bottom: "a" top: "a" }
        """)
    )
    assert [layer.name for layer in split.layer] == ["a", "a_a_0_split", "b"]
    assert followers(split.layer) == {0: 1}


TWINS = """
layer { name: 'x' type: 'Input' top: 'x' }
layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'y' include { phase: TRAIN } }
layer { name: 'a' type: 'Convolution' bottom: 'x' top: 'y' include { phase: TEST } }
layer { name: 'b' type: 'ReLU' bottom: 'y' top: 'y' }
layer { type: 'ReLU' bottom: 'y' top: 'y' }
layer { type: 'ReLU' bottom: 'y' top: 'y' }
"""


@pytest.mark.parametrize("phase", [0, 1])
def test_layers_of_one_name_are_kept(phase):
    assert names(filter_layers(net(TWINS), NetState(phase=phase))) == ["x", "a", "b", "", ""]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: 'n'", "net 'n': no layers$"),
        (
            "name: 'n' layer { name: 'a' include { phase: TRAIN } }",
            "net 'n': 1 layer.s., none of them for this",
        ),
    ],
)
def test_a_net_without_layers_is_refused(text, said):
    with pytest.raises(NetError, match=said):
        filter_layers(net(text), NetState(phase=1))
