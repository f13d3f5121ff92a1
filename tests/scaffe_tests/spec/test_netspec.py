"""NetSpec, layers and params: nets written in Python are those that the same net's prototxt describes."""

import copy

import pytest
from google.protobuf import text_format

import scaffe
from scaffe import layers as L
from scaffe.errors import NetError, UnknownNameError
from scaffe.proto import LayerParameter, NetParameter
from scaffe.spec import netspec
from scaffe.spec import params as P


def parsed(text):
    return text_format.Parse(text, NetParameter())


def data(n):
    n.data, n.label = L.DummyData(ntop=2, shape=[dict(dim=[2, 3, 6, 6]), dict(dim=2)])
    return n


DATA = """layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } shape { dim: 2 } } }"""


def test_a_net_is_the_one_that_its_prototxt_describes():
    n = data(scaffe.NetSpec())
    n.conv1 = L.Convolution(
        n.data, num_output=4, kernel_size=3, weight_filler=dict(type="xavier"),
        param=[dict(lr_mult=1, decay_mult=1), dict(lr_mult=2, decay_mult=0)],
    )  # fmt: skip
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.pool1 = L.Pooling(n.relu1, pool=P.Pooling.AVE, kernel_size=2, stride=2)
    n["score"] = L.InnerProduct(n["pool1"], inner_product_param=dict(num_output=5))
    n.accuracy = L.Accuracy(n.score, n.label, include=dict(phase=scaffe.TEST))
    n.loss = L.SoftmaxWithLoss(n.score, n.label, loss_weight=0.5, propagate_down=[True, False])
    assert n.to_proto() == parsed(
        DATA
        + """
        layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
          param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
          convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
        layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
        layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
          pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
        layer { name: "score" type: "InnerProduct" bottom: "pool1" top: "score" inner_product_param { num_output: 5 } }
        layer { name: "accuracy" type: "Accuracy" bottom: "score" bottom: "label" top: "accuracy"
          include { phase: TEST } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss"
          loss_weight: 0.5 propagate_down: true propagate_down: false }"""
    )


def test_unnamed_tops_get_their_types_name_and_a_number():
    x = L.Input(shape=dict(dim=[1, 2]))
    assert scaffe.to_proto(L.ReLU(L.TanH(L.TanH(x)))) == parsed(
        """
        layer { name: "Input1" type: "Input" top: "Input1" input_param { shape { dim: 1 dim: 2 } } }
        layer { name: "TanH1" type: "TanH" bottom: "Input1" top: "TanH1" }
        layer { name: "TanH2" type: "TanH" bottom: "TanH1" top: "TanH2" }
        layer { name: "ReLU1" type: "ReLU" bottom: "TanH2" top: "ReLU1" }"""
    )


def test_layers_stand_in_the_order_of_their_names_behind_what_they_need():
    n = scaffe.NetSpec()
    late = L.Input(shape=dict(dim=[1, 2]))
    n.b = L.ReLU(late)
    n.c = L.Eltwise(n.b, L.TanH(late), operation="SUM", coeff=(1, -1))
    n.a = late
    assert [layer.name for layer in n.to_proto().layer] == ["a", "b", "TanH1", "c"]


def test_several_tops_are_one_net_with_what_they_share():
    x = L.Input(shape=dict(dim=[1, 2]))
    one, two = x.to_proto(), scaffe.to_proto(L.ReLU(x), L.TanH(x))
    assert len(one.layer) == 1
    assert [layer.type for layer in two.layer] == ["Input", "ReLU", "TanH"]


def test_a_layer_without_tops_and_one_with_a_name_of_its_own():
    n = data(scaffe.NetSpec())
    n.quiet = L.Silence(n.label, ntop=0)
    n.held = L.DummyData(ntop=0, name="data", top=["data", "label"], include=dict(phase=scaffe.TEST))
    last = n.to_proto().layer[1:]
    assert last[0] == parsed('layer { name: "quiet" type: "Silence" bottom: "label" }').layer[0]
    text = 'layer { name: "data" type: "DummyData" top: "data" top: "label" include { phase: TEST } }'
    assert last[1] == parsed(text).layer[0]


def test_python_layers_and_types_that_share_a_message():
    n = data(scaffe.NetSpec())
    n.mine = L.Python(n.data, module="mine", layer="Mine", param_str="3")
    n.up = L.Deconvolution(n.data, num_output=3, kernel_size=[2, 3])
    mine, up = n.to_proto().layer[1:]
    assert (mine.python_param.module, mine.python_param.layer, mine.python_param.param_str) == ("mine", "Mine", "3")
    assert up.convolution_param.num_output == 3 and list(up.convolution_param.kernel_size) == [2, 3]


def test_tops_are_there_by_name_and_can_go():
    n = data(scaffe.NetSpec())
    n.update({"x": L.ReLU(n.data)})
    assert n.keys() == ["data", "label", "x"] and n.vals()[2] is n.x is n["x"] and "x" in n
    del n.x
    del n["label"]
    assert list(n) == ["data"]
    with pytest.raises(AttributeError, match="no top 'x'; tops: data$"):
        n.x  # noqa: B018


def test_a_copy_is_the_same_net():
    n = data(scaffe.NetSpec())
    m = copy.copy(n)
    assert m.to_proto() == n.to_proto()


def test_a_net_deeper_than_pythons_stack():
    top = L.Input(shape=dict(dim=[1]))
    for _ in range(3000):
        top = L.Power(top)
    assert len(scaffe.to_proto(top).layer) == 3001


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: L.Convolution(x, num_outputs=3), "unknown field 'num_outputs'; did you mean 'num_output'"),
        (lambda x: L.ReLU(x, foo_param={}), "ReLU: unknown field 'foo_param'.*negative_slope.*loss_weight"),
        (lambda x: L.Pooling(x, pool="MOST"), "Pooling, pool: expected one of MAX, AVE, STOCHASTIC, got 'MOST'"),
        (lambda x: L.Convolution(x, pad=-1), "Convolution, pad: expected a whole number in its range, got -1"),
        (lambda x: L.Convolution(x, weight_filler=dict(typ="x")), "weight_filler: FillerParameter has no field 'typ'"),
        (lambda x: L.Convolution(x, weight_filler="xavier"), r"weight_filler: expected dict\(type=.*got 'xavier'"),
        (lambda x: L.ReLU("data"), "^ReLU input 0 is not a Top .type is <class 'str'>.$"),
        (lambda x: L.ReLU(x, in_place=True, ntop=2), r"ReLU: in_place with 1 bottom\(s\) and 2 top\(s\)"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_known(call, message):
    with pytest.raises(NetError, match=message):
        call(L.Input(shape=dict(dim=[1])))


def test_a_name_stands_for_one_top():
    n = scaffe.NetSpec()
    with pytest.raises(NetError, match="'data' must be the top of a layer.*several tops go to several names"):
        n.data = L.DummyData(ntop=2)


def test_a_value_that_is_no_top_is_a_type_error_as_in_pycaffe():
    with pytest.raises(TypeError, match=r"^Silence input 0 is not a Top \(type is <class 'tuple'>\)$"):
        L.Silence(L.DummyData(ntop=2), ntop=0)
    with pytest.raises(TypeError, match="'x' must be the top of a layer"):
        scaffe.NetSpec().x = 3


def test_a_top_has_its_function_whose_fields_can_change():
    n = data(scaffe.NetSpec())
    n.score = L.InnerProduct(n.data, num_output=5, in_place=False)
    assert (n.label.n, n.label.fn is n.data.fn, n.score.fn.type_name) == (1, True, "InnerProduct")
    assert n.score.fn.params == {"num_output": 5} and n.score.fn.inputs == [n.data]
    n.score.fn.params["num_output"] = 7
    assert n.to_proto().layer[-1] == LayerParameter(
        name="score", type="InnerProduct", bottom=["data"], top=["score"], inner_product_param=dict(num_output=7)
    )
    n.score.fn.params["num_outputs"] = 7
    with pytest.raises(NetError, match="unknown field 'num_outputs'"):
        n.to_proto()


def test_messages_are_assigned_from_numbers_lists_and_dicts():
    layer = LayerParameter()
    netspec.assign_proto(layer, "convolution_param", dict(kernel_size=3, weight_filler=dict(type="xavier")))
    netspec.assign_proto(layer, "param", [dict(lr_mult=1), dict(lr_mult=2)])
    netspec.assign_proto(layer, "loss_weight", 0.5)
    text = """convolution_param { kernel_size: 3 weight_filler { type: "xavier" } }
        param { lr_mult: 1 } param { lr_mult: 2 } loss_weight: 0.5"""
    assert layer == text_format.Parse(text, LayerParameter())
    with pytest.raises(NetError, match="LayerParameter has no field 'nam'"):
        netspec.assign_proto(layer, "nam", "x")


def test_the_names_of_messages_are_found_by_layer_types():
    names = netspec.param_name_dict()
    assert names["InnerProduct"] == "inner_product" and names["LRN"] == "lrn"
    fields = {field.name for field in LayerParameter.DESCRIPTOR.fields if field.name.endswith("_param")}
    assert {f"{name}_param" for name in names.values()} <= fields


def test_pycaffes_pseudo_modules_have_types_that_scaffe_does_not_know():
    x = netspec.layers.Input(shape=dict(dim=[1, 2]))
    layer = scaffe.to_proto(netspec.layers.OfMyFork(x, loss_weight=2)).layer[-1]
    assert (layer.type, layer.name, list(layer.loss_weight)) == ("OfMyFork", "OfMyFork1", [2])
    assert netspec.params.Pooling.MAX == P.Pooling.MAX


def test_unknown_types_and_constants_are_told_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="'Dense'; known types: AbsVal .*Convolution"):
        L.Dense()
    with pytest.raises(UnknownNameError, match="'Dense'; known names: .*Pooling"):
        P.Dense  # noqa: B018
    assert "Convolution" in dir(L) and "Pooling" in dir(P)


def test_in_place_all_bottoms_are_tops():
    n = scaffe.NetSpec()
    n.a, n.b = L.DummyData(ntop=2, shape=dict(dim=[2]))
    n.c, n.d = L.Python(n.a, n.b, module="m", layer="l", ntop=2, in_place=True)
    layer = n.to_proto().layer[1]
    assert list(layer.bottom) == list(layer.top) == ["a", "b"]
