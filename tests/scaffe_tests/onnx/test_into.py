"""Nets of ONNX models: ONNX's own tests of these ops, what is refused, and models written by ourselves."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import onnx
import onnx_backend
import onnxruntime
import pytest
from deploy_draw import DeployDraw
from google.protobuf import text_format
from onnx import TensorProto, helper, numpy_helper
from onnx_runs import built, difference, inputs, run

from scaffe import models
from scaffe.errors import ScaffeError
from scaffe.onnx.imported import Imported
from scaffe.onnx.model import model_of
from scaffe.proto import NetParameter

CLOSE = 1e-5
# onnxruntime 1.23, the newest for Python 3.10, and 1.24 leave uneven padding out of a mean that includes it; 1.32
# computes as ONNX's reference.
COUNTS_UNEVEN = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32)
X = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype(np.float32)


def model(nodes, outputs="y", shape=X.shape, opset=17, **constants):
    """Return a model of an input x and constants."""
    info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()]
    weights = [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "graph", info, made, initializer=weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(kind, names="x", outputs="y", **attributes):
    return helper.make_node(kind, names.split(" "), outputs.split(" "), name=f"the_{kind}", **attributes)


def compare(made, x=X):
    """Return the largest difference of a net from its model, also where the batch is one larger."""
    net = Imported(made).net()
    worst = difference(net.forward(x=x), run(made, {"x": x}))
    return worst, net


def test_onnxs_own_tests_of_these_ops():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [(case.name, *onnx_backend.run(case)) for case in onnx_backend.cases()]
    assert [one for one in results if one[1] == "failed"] == []
    counts = Counter(how for _, how, _ in results)
    assert counts["passed"] > 350 and counts["skipped"] < 80
    assert all(why for _, how, why in results if how == "skipped")


@pytest.mark.parametrize("seed", range(12))
def test_models_of_random_nets_come_back(seed):
    net = built(text_format.Parse(DeployDraw(seed).text, NetParameter()))
    made = model_of(net)
    kinds = {one.op_type for one in made.graph.node}
    if kinds & {"TopK", "Cast", "Mod", "Greater"}:
        pytest.skip("indices are no float32")
    given = inputs(net)
    back = Imported(made, batch=2).net()
    assert difference(net.forward(**given), back.forward(**given)) < CLOSE


@pytest.mark.parametrize("name", ["lenet", "cifar10_full_sigmoid_bn"])
def test_a_net_comes_back_with_its_blobs(name):
    net = built(models.get(name).deploy(2))
    back = Imported(model_of(net), batch=2).net()
    given = inputs(net)
    assert difference(net.forward(**given), back.forward(**given)) < CLOSE
    assert set(net.blobs) - {one for one in net.blobs if "split" in one} <= set(back.blobs)


def test_a_convolution_with_other_padding_at_each_side():
    weights = np.random.default_rng(1).normal(size=(4, 3, 3, 2)).astype(np.float32)
    for pads, strides in (([0, 1, 2, 0], [1, 1]), ([1, 0, 0, 2], [2, 3])):
        conv = node("Conv", "x w", pads=pads, strides=strides, kernel_shape=[3, 2])
        assert compare(model([conv], w=weights))[0] < CLOSE


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [1, 0, 0, 1], [2, 1, 2, 2]])
def test_pooling_with_any_padding(kind, include, ceil, pads):
    if kind == "MaxPool" and include:
        pytest.skip("a maximum counts no padding")
    if include and pads[:2] != pads[2:] and not COUNTS_UNEVEN:
        pytest.skip(f"onnxruntime {onnxruntime.__version__} does not count uneven padding")
    more = {"count_include_pad": include} if kind == "AveragePool" else {}
    for strides in ([1, 1], [2, 2], [3, 1]):
        pool = node(kind, kernel_shape=[3, 3], strides=strides, pads=pads, ceil_mode=ceil, **more)
        try:
            worst, _ = compare(model([pool], opset=19))
        except ScaffeError as error:
            assert "padding" in str(error) or "no windows" in str(error)
        else:
            assert worst < CLOSE


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(("axes", "layer"), [([2, 3], "Pooling"), ([1], "Reduction"), ([1, 3], "Reduction")])
def test_a_mean_over_pixels_is_a_pooling_and_one_over_other_axes_a_reduction(axes, layer, keepdims):
    worst, net = compare(model([node("ReduceMean", axes=axes, keepdims=keepdims)]))
    assert worst < CLOSE and layer in {one.type for one in net.layers}


@pytest.mark.parametrize(
    "part", [(), (1,), (6,), (5, 6), (3, 1, 1), (1, 3, 1, 1), (3, 1, 6), (2, 1, 1, 6), (2, 3, 5, 6)]
)
@pytest.mark.parametrize("kind", ["Add", "Mul", "Sub", "Div"])
def test_constants_broadcast_on_either_side(kind, part):
    values = np.random.default_rng(2).uniform(1, 2, part).astype(np.float32)
    x = np.abs(X) + 1
    assert compare(model([node(kind, "x c")], c=values), x)[0] < CLOSE
    assert compare(model([node(kind, "c x")], c=values), x)[0] < CLOSE


def test_a_product_and_a_part_of_a_blob():
    x, weights = X[:, :, 0, 0], np.random.default_rng(6).normal(size=(3, 3)).astype(np.float32)
    nodes = [node("Abs", "x", "a"), node("Gemm", "x w a", "y", alpha=2.0, beta=0.5)]
    assert compare(model(nodes, shape=x.shape, w=weights), x)[0] < CLOSE


def test_the_squeeze_and_excitation_of_a_batch_of_one_grows():
    nodes = [node("GlobalAveragePool", "x", "s"), node("Sigmoid", "s", "g"), node("Mul", "x g", "y")]
    made = model(nodes, shape=(1, 3, 5, 6))
    net = Imported(made).net()
    net.blobs["x"].reshape(*X.shape)
    net.reshape()
    means = X.mean((2, 3), keepdims=True)
    assert np.allclose(net.forward(x=X)["y"], X / (1 + np.exp(-means)), atol=1e-5)


def test_shapes_that_a_model_computes_are_folded():
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape zero", "batch", axis=0),
        node("Unsqueeze", "batch axes", "row"), node("Concat", "row rest", "wanted", axis=0),
        node("Reshape", "x wanted", "flat"), node("MatMul", "flat w", "y"),
    ]  # fmt: skip
    weights = np.random.default_rng(3).normal(size=(90, 4)).astype(np.float32)
    whole = dict(zero=np.int64(0), axes=np.array([0]), rest=np.array([-1]))
    worst, net = compare(model(nodes, w=weights, **whole))
    assert worst < CLOSE
    net.blobs["x"].reshape(5, 3, 5, 6)
    net.reshape()
    assert net.blobs["y"].shape == (5, 4)


def test_statistics_and_constants_are_not_learned():
    constants = [np.random.default_rng(4).uniform(1, 2, 3).astype(np.float32) for _ in range(4)]
    norm = node("BatchNormalization", "x a b m v", "n")
    made = Imported(
        model(
            [norm, node("Mul", "n c")], **dict(zip("abmv", constants, strict=True)), c=np.float32([[[1]], [[2]], [[3]]])
        )
    )
    rates = {layer.name: [spec.lr_mult for spec in layer.param] for layer in made.param.layer}
    assert rates["the_Mul"] == [0] and rates["the_BatchNormalization/Scale"] == []
    assert difference(made.net().forward(x=X), run(made.model, {"x": X})) < CLOSE


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node("Erf")], r"node 'the_Erf' \(Erf\): no layer does this op"),
        ([node("MatMul", "x x")], "the_MatMul.*both its inputs are computed"),
        ([node("Cast", to=TensorProto.INT64)], "it casts to another type"),
        ([node("Pad", "x p", mode="reflect")], "its mode is reflect"),
        ([node("Slice", "x one two two two")], "its step is 2"),
        ([node("MaxPool", kernel_shape=[2, 2], dilations=[2, 2])], "its dilations"),
        ([node("Conv", "x r")], "its input 1 is computed"),
        ([node("Relu", "nothing")], "nothing makes its input 'nothing'"),
        ([node("Relu", domain="elsewhere")], r"the_Relu.*no layer does this op"),
        ([node("Dropout", "x half yes")], "its training_mode is on"),
        ([node("LRN", size=4)], "its size is 4"),
        ([node("Add", "x p")], "the_Add.*do not fit"),
        ([node("MaxPool")], "the_MaxPool.*do not fit"),
        ([node("Gather", "x none")], "its indices are none, or beyond"),
        ([node("Gather", "x two", axis=0)], "its indices are none, or beyond the 2 of axis 0"),
        ([node("RandomUniformLike", "p", "q"), node("Add", "x q")], "it draws random values"),
    ],
)
def test_what_no_layer_does_is_told_with_node_and_op(nodes, said):
    whole = dict(p=np.ones(8, np.int64), one=np.array([1]), two=np.array([2]), none=np.zeros(0, np.int64))
    whole |= dict(half=np.float32(0.5), yes=np.array(True))
    first = node("Relu", "x", "r")
    with pytest.raises(ScaffeError, match=said):
        Imported(model([first, *nodes], **whole))


def test_an_open_size_is_asked_for():
    made = model([node("Relu")], shape=("N", 3, "H", "W"))
    with pytest.raises(ScaffeError, match=r"input 'x' leaves sizes open: give --shape x=1,3,\?,\?"):
        Imported(made)
    assert Imported(made, shapes={"x": (2, 3, 4, 4)}).net().blobs["y"].shape == (2, 3, 4, 4)
    assert Imported(model([node("Relu")], shape=("N", 3, 5, 6)), batch=7).net().blobs["y"].shape[0] == 7


def test_an_input_without_a_shape_and_a_shape_without_an_input():
    with pytest.raises(ScaffeError, match=r"input 'x' says no shape: give --shape x=N"):
        Imported(model([node("Relu")], shape=None))
    with pytest.raises(ScaffeError, match=r"--shape z: no such input; inputs: x"):
        Imported(model([node("Relu")]), shapes={"z": (2, 3)})


def test_an_output_that_is_an_input_and_one_that_is_a_constant():
    made = model([node("Identity", "x", "y"), node("Identity", "c", "z")], "y z", c=np.float32([1, 2]))
    found = Imported(made).net().forward(x=X)
    assert (found["y"] == X).all() and found["z"].tolist() == [1, 2]


def test_a_lstm_of_both_directions():
    rng = np.random.default_rng(5)
    shapes = dict(w=(2, 16, 6), r=(2, 16, 4), b=(2, 32))
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    lstm = node("LSTM", "x w r b", "y h c", hidden_size=4, direction="bidirectional")
    made = model([lstm], "y h c", shape=(5, 3, 6), **weights)
    x = rng.normal(size=(5, 3, 6)).astype(np.float32)
    net = Imported(made).net()
    for _ in range(2):  # no state carries over
        assert difference(net.forward(x=x), run(made, {"x": x})) < CLOSE


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("place", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_resizing(mode, place):
    resize = node("Resize", "x  s", mode=mode, coordinate_transformation_mode=place)
    for scales in ([1, 1, 2, 2], [1, 1, 1.6, 0.5]):
        assert compare(model([resize], s=np.float32(scales)))[0] < CLOSE


def test_an_empty_graph_is_refused_by_the_checker(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    for name in ("bad.onnx", "none.onnx"):
        with pytest.raises(ScaffeError, match=rf"{name}: no (valid ONNX model|such file)"):
            Imported(str(tmp_path / name))
    assert onnx.__version__
