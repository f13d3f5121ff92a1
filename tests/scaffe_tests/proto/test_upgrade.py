"""Old nets and solvers: what Caffe's own tools make of them, each field's place, and what can't be upgraded."""

import logging
import re

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe
from scaffe.errors import PrototxtError
from scaffe.proto import (
    LayerParameter,
    NetParameter,
    SolverParameter,
    V0LayerParameter,
    V1LayerParameter,
)
from scaffe.proto.files import read_net, read_solver, read_weights
from scaffe.proto.upgrade import upgrade_net


@pytest.fixture
def logged():
    """The lines that are logged in the test."""
    lines, log = [], logging.getLogger("scaffe")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield lines
    log.removeHandler(handler)
    log.setLevel(level)


def net(text):
    return text_format.Parse(text, NetParameter())


def upgraded(text):
    return upgrade_net(net(text), "old.prototxt")


def refused(text):
    with pytest.raises(PrototxtError) as error:
        upgraded(text)
    assert str(error.value).startswith("old.prototxt: ")
    assert "\n" not in str(error.value)
    return str(error.value)


# Against Caffe's own tools.


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_a_net_becomes_what_caffes_tool_makes_of_it(cases, version, logged):
    folder = cases / "caffe" / "artefacts" / "upgrade"
    theirs = text_format.Parse((folder / f"{version}_upgraded.prototxt").read_text(), NetParameter())
    assert read_net(folder / f"{version}.prototxt") == theirs
    [line] = logged
    assert line.startswith(f"{folder}/{version}.prototxt: upgraded to the present form: {version.upper()} layers")


def test_the_present_form_is_left_as_it_is(cases, logged):
    path = cases / "caffe" / "artefacts" / "quick_xavier.prototxt"
    assert read_net(path) == net(path.read_text())
    assert logged == []


# V0.


def v0(kind, fields, connection=""):
    """Return the layer that a V0 layer of that type becomes."""
    return upgraded(f"layers {{ layer {{ name: 'l' type: '{kind}' {fields} }} {connection} }}").layer[0]


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (
            "images",
            "source: 's' batchsize: 2 rand_skip: 3 shuffle_images: true new_height: 4 new_width: 5 scale: 0.5",
            """type: 'ImageData' transform_param { scale: 0.5 } image_data_param {
            source: 's' batch_size: 2 rand_skip: 3 shuffle: true new_height: 4 new_width: 5 }""",
        ),
        (
            "window_data",
            """source: 's' batchsize: 2 det_fg_threshold: 0.25 det_bg_threshold: 0.125 det_fg_fraction: 0.75
            det_context_pad: 16 det_crop_mode: 'square' cropsize: 227 meanfile: 'm'""",
            """type: 'WindowData' transform_param { crop_size: 227 mean_file: 'm' } window_data_param { source: 's'
            batch_size: 2 fg_threshold: 0.25 bg_threshold: 0.125 fg_fraction: 0.75 context_pad: 16
            crop_mode: 'square' }""",
        ),
        ("hdf5_data", "source: 's' batchsize: 2", "type: 'HDF5Data' hdf5_data_param { source: 's' batch_size: 2 }"),
        (
            "hdf5_output",
            "hdf5_output_param { file_name: 'f' }",
            "type: 'HDF5Output' hdf5_output_param { file_name: 'f' }",
        ),
        ("infogain_loss", "source: 's'", "type: 'InfogainLoss' infogain_loss_param { source: 's' }"),
        ("concat", "concat_dim: 0", "type: 'Concat' concat_param { concat_dim: 0 }"),
        ("lrn", "k: 2", "type: 'LRN' lrn_param { k: 2 }"),
        (
            "pool",
            "pool: STOCHASTIC kernelsize: 3 stride: 2 pad: 1",
            "type: 'Pooling' pooling_param { pool: STOCHASTIC kernel_size: 3 stride: 2 pad: 1 }",
        ),
        (
            "conv",
            "biasterm: false group: 2 blobs_lr: 1 blobs_lr: 2 weight_decay: 0.5",
            """type: 'Convolution' param { lr_mult: 1 decay_mult: 0.5 } param { lr_mult: 2 }
            convolution_param { bias_term: false group: 2 }""",
        ),
        ("euclidean_loss", "", "type: 'EuclideanLoss'"),
    ],
)
def test_each_field_of_a_v0_layer_has_its_place(kind, fields, expected):
    assert v0(kind, fields) == text_format.Parse(f"name: 'l' {expected}", LayerParameter())


def test_padding_goes_into_the_layers_after_it():
    text = """layers { layer { name: 'p' type: 'padding' pad: 2 } bottom: 'a' top: 'b' }
        layers { layer { name: 'c' type: 'conv' } bottom: 'b' top: 'c' }
        layers { layer { name: 'd' type: 'pool' } bottom: 'b' top: 'd' }
        layers { layer { name: 'e' type: 'concat' } bottom: 'c' bottom: 'd' top: 'b' }
        layers { layer { name: 'f' type: 'relu' } bottom: 'b' top: 'b' }"""
    layers = upgraded(text).layer
    assert [layer.name for layer in layers] == ["c", "d", "e", "f"]
    assert [list(layer.bottom) for layer in layers] == [["a"], ["a"], ["c", "d"], ["b"]]
    assert list(layers[0].convolution_param.pad) == [2]
    assert layers[1].pooling_param.pad == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("layers { layer { name: 'x' type: 'maxout' } }", "layer 'x': unknown V0 type 'maxout'; known types: accuracy"),
        (
            "layers { layer { name: 'x' type: 'relu' kernelsize: 3 } }",
            "layer 'x': .* type 'relu' has no .*'kernelsize'",
        ),
        ("layers { layer { name: 'x' type: 'data' new_num: 3 } }", "layer 'x': .* type 'data' has no field 'new_num'"),
        (
            """layers { layer { name: 'x' type: 'padding' pad: 1 } bottom: 'a' top: 'b' }
            layers { layer { name: 'y' type: 'relu' } bottom: 'b' top: 'b' }""",
            "padding layer 'x': feeds layer 'y' of type 'relu' with 1 bottoms",
        ),
        (
            """layers { layer { name: 'x' type: 'padding' pad: 1 } bottom: 'a' bottom: 'c' top: 'b' }
            layers { layer { name: 'y' type: 'conv' } bottom: 'b' top: 'b' }""",
            "padding layer 'x': 2 bottoms and 1 tops",
        ),
    ],
)
def test_a_v0_layer_that_has_no_present_form_is_named(text, said):
    message = refused(text)
    assert message.startswith("old.prototxt: can't upgrade V0 layers: ")
    assert re.search(said, message)


# V1.


@pytest.mark.parametrize("kind", [name for name in V1LayerParameter.LayerType.keys() if name != "NONE"])  # noqa: SIM118
def test_every_v1_type_has_its_name(kind):
    name = upgraded(f"layers {{ name: 'l' type: {kind} }}").layer[0].type
    plain = {"SOFTMAX_LOSS": "softmaxwithloss"}.get(kind, kind.replace("_", "").lower())
    assert name.lower() == plain


@pytest.mark.parametrize("message", ["data_param", "image_data_param", "window_data_param"])
def test_a_v1_data_layers_transformation_moves(message):
    kind = message.removesuffix("_param").upper()
    layer = upgraded(
        f"""layers {{ type: {kind} transform_param {{ mean_value: 3 }} {message} {{
        source: 's' scale: 0.5 mean_file: 'm' crop_size: 7 mirror: true }} }}"""
    ).layer[0]
    assert str(layer.transform_param) == str(
        text_format.Parse(
            "scale: 0.5 mirror: true crop_size: 7 mean_file: 'm' mean_value: 3", type(layer.transform_param)()
        )
    )
    assert [field.name for field, _ in getattr(layer, message).ListFields()] == ["source"]


def test_a_present_data_layers_stray_transformation_is_ignored_as_by_caffe_and_told(logged):
    text = "layer { name: 'd' type: 'Data' data_param { scale: 0.5 mirror: true } }"
    assert upgraded(text) == net(text)
    assert logged == ["old.prototxt: layer 'd': ignored, as by Caffe, outside of transform_param: scale, mirror"]


def test_layers_of_both_forms_are_refused():
    message = refused("layer { name: 'new' type: 'ReLU' } layers { name: 'old' type: RELU }")
    assert "layer 'new' is written 'layer {', layer 'old' in the old form 'layers {'" in message


def as_v1(layer):
    old = V1LayerParameter(name=layer.name, type=V1LayerParameter.INNER_PRODUCT)
    for blob in layer.blobs:
        flat = old.blobs.add(num=1, channels=1, data=blob.data)
        flat.height, flat.width = (1, *blob.shape.dim)[-2:]
    return old


NET = """layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 5 } } }
    layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param { num_output: 3
    weight_filler { type: 'xavier' } bias_filler { type: 'uniform' } } }"""


@pytest.mark.parametrize("version", [0, 1])
def test_weights_of_2014_are_loaded(tmp_path, version):
    one, other = scaffe.Net(net(NET), scaffe.TEST), scaffe.Net(net(NET), scaffe.TEST)
    one.save(tmp_path / "new.caffemodel")
    old = NetParameter(layers=[as_v1(layer) for layer in read_weights(tmp_path / "new.caffemodel").layer[1:]])
    if version == 0:
        for layer in old.layers:
            layer.layer.name, layer.layer.type = layer.name, "innerproduct"
            layer.layer.blobs.extend(layer.blobs)
            for field in ("name", "type", "blobs"):
                layer.ClearField(field)
    (tmp_path / "old.caffemodel").write_bytes(old.SerializeToString())
    other.copy_from(tmp_path / "old.caffemodel")
    for mine, theirs in zip(one.params["ip"], other.params["ip"], strict=True):
        assert np.array_equal(mine.data, theirs.data)


def test_an_old_net_inside_a_solver_is_upgraded(tmp_path):
    text = """layers { name: 'd' type: DUMMY_DATA top: 'x' dummy_data_param { num: 2 channels: 3 height: 1 width: 1 } }
        layers { name: 'ip' type: INNER_PRODUCT bottom: 'x' top: 'y' inner_product_param { num_output: 3 } }
        layers { name: 'loss' type: EUCLIDEAN_LOSS bottom: 'y' bottom: 'y' }"""
    param = SolverParameter(base_lr=0.1, lr_policy="fixed", net_param=net(text), snapshot_after_train=False)
    solver = scaffe.get_solver(param)
    assert [layer.type for layer in solver.net.param.layer][:2] == ["DummyData", "InnerProduct"]


# Input fields, BatchNorm's params, solver types.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("input: 'a' input_dim: 1 input_dim: 3", "2 input_dim for 1 input; expected 4 for each"),
        ("input: 'a' input: 'b' input_shape { dim: 1 }", "1 input_shape for 2 input; expected 1 for each"),
    ],
)
def test_inputs_whose_shapes_do_not_add_up_are_refused(text, said):
    assert said in refused(text)


def test_inputs_without_a_shape_leave_no_layer():
    assert upgraded("input: 'a' layer { name: 'ip' }") == net("layer { name: 'ip' }")


def test_old_batch_norm_layers_do_not_learn_their_statistics(logged):
    def layer(mult):
        params = "".join(f"param {{ name: '{name}' {mult} }}" for name in "abc")
        return f"layer {{ name: 'bn' type: 'BatchNorm' {params} }}"

    still = layer("lr_mult: 0 decay_mult: 0")
    assert upgraded(layer("lr_mult: 1")) == upgraded(layer("")) == net(still)
    assert logged == ["old.prototxt: upgraded to the present form: BatchNorm's param fields"] * 2
    assert upgraded(still) == net(still)
    assert len(logged) == 2


def test_a_solver_of_two_types_is_refused(tmp_path):
    path = tmp_path / "solver.prototxt"
    path.write_text("type: 'SGD' solver_type: ADAM")
    with pytest.raises(PrototxtError, match=r"solver\.prototxt: both type and the old solver_type"):
        read_solver(path)


@pytest.mark.parametrize("word", [b"conv1", b"topx", b"botx", b"images", b"in.jpg"])
def test_a_binary_net_with_strings_that_are_not_utf8_is_refused(tmp_path, word):
    layer = V0LayerParameter(name="conv1", type="images", source="in.jpg")
    old = NetParameter(layers=[V1LayerParameter(layer=layer, top=["topx"], bottom=["botx"])]).SerializeToString()
    (tmp_path / "old.caffemodel").write_bytes(old.replace(word, b"\xff" * len(word)))
    with pytest.raises(PrototxtError, match=r"^.*old.caffemodel: can't upgrade V[01] layers: .*\\xff"):
        read_weights(tmp_path / "old.caffemodel")
