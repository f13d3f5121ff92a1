"""Files of Caffe's forks, refused by a line that names file, line, layer and fork; Intel's engines, understood."""

# ruff: noqa: E501  a row is a line

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe
from scaffe.errors import NetError, PrototxtError, WeightsError
from scaffe.proto import LayerParameter, NetParameter, V1LayerParameter, caffe_pb2, forks
from scaffe.proto.files import read_net, read_solver
from scaffe.proto.places import layers
from scaffe.proto.upgrade_files import upgrade_net_file

INPUT = 'layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }\n'
BEHIND = 'layer {{\n  name: "it"\n  type: "{}"\n  bottom: "in"\n  top: "it"\n{}}}\n'

# A layer of a fork's published prototxts: its type, the lines behind its top, the line that is named, what is said.
LAYERS = [
    ("VideoData", "  video_data_param { video_type: WEBCAM }\n", 7, "is of SSD's Caffe; .*ImageData"),
    ("Data", "  transform_param { scale: 1\n    noise_param { prob: 1 } }\n", 8, "it' (Data): field noise_param is of SSD's"),
    ("BatchNorm", "  batch_norm_param { eps: 1e-4\n scale_filler { value: 1 } }\n", 8, "field scale_filler is of NVCaffe; use BatchNorm, and behind it Scale"),
    ("BatchNorm", "  batch_norm_param { scale_bias: true }\n", 7, "it' (BatchNorm): field scale_bias is of NVCaffe; .*Scale"),
    ("BatchNorm", "  batch_norm_param { bias_filler { value: 0 } }\n", 7, "field bias_filler is of NVCaffe or Intel's Caffe"),
    ("BatchNorm", "  batch_norm_param { engine: CUDNN }\n", 7, "field engine is of Intel's Caffe or NVCaffe; leave it out"),
    ("Convolution", "  forward_type: FLOAT16\n", 7, "it' (Convolution): field forward_type is of NVCaffe; .*--compute bf16"),
    ("Convolution", "  convolution_param { cudnn_convolution_algo_seeker: FINDEX }\n", 7, "is of NVCaffe; .*--plan timed"),
    ("Data", "  data_param { source: 'x'\n threads: 4 }\n", 8, "field threads is of NVCaffe; .*--reader-threads"),
    ("Convolution", "  convolution_param {\n    engine: MKL2017 }\n", 8, "it' (Convolution): value MKL2017 is of Intel's Caffe; write MKLDNN"),
    ("ReLU", '  engine: "MKL2017"\n', 7, "it' (ReLU): engine \"MKL2017\" is of Intel's Caffe; write MKLDNN"),
    ("Convolution", "  convolution_param { relu: true }\n", 7, "field relu is of Intel's Caffe; add a ReLU layer"),
    ("Softmax", "  loss_param { normalization: PRE_FIXED }\n", 7, "value PRE_FIXED is of Intel's Caffe"),
    ("Convolution", "  quantization_param { bw_params: 8 }\n", 7, "field quantization_param is of Intel's Caffe"),
    ("HSwish", "", 4, "type HSwish is of a fork of Caffe; write HardSwish"),
    ("ROIAlign", "  roi_align_param { pooled_w: 7 }\n", 7, "type ROIAlign is of Faster R-CNN's Caffe"),
    ("DetectionOutput", "  detection_output_param { num_classes: 20\n    num_box: 5 }\n", 8, "it' (DetectionOutput): field num_box is of a Caffe with YOLO; write type YoloDetectionOutput"),
    ("Dropout", "  dropout_param { scale_train: false }\n", 7, "it' (Dropout): field scale_train is of Faster R-CNN's Caffe; leave it out, and multiply"),
    ("ImageSegData", "", 4, "is of DeepLab's or PSPNet's Caffe"),
    ("SpatialDropout", "", 4, "is of SegNet's or ENet's Caffe"),
    ("MultiStageMeanfield", "  multi_stage_meanfield_param { num_iterations: 10 }\n", 7, "is of CRF-RNN's Caffe"),
    ("CenterLoss", "  center_loss_param { num_output: 10 }\n", 7, "is of a Caffe for faces"),
    ("Correlation", "  correlation_param { pad: 3 }\n", 7, "is of FlowNet's Caffe"),
    ("Convolution", "  convolution_param { hole: 12 }\n", 7, "field hole is of DeepLab's or PSPNet's Caffe; write dilation"),
    ("SoftmaxWithLoss", "  loss_param { weight_source: 'w' }\n", 7, "field weight_source is of DeepLab's or PSPNet's"),
    ("SoftmaxWithLoss", "  loss_param { class_weighting: 0.2 }\n", 7, "field class_weighting is of SegNet's or ENet's"),
    ("ImResize", "  imresize_param { factor: 8 }\n", 7, "type ImResize is of OpenPose's Caffe"),
    ("LSTM", "  lstm_param { num_output: 3 }\n", 7, "field lstm_param is of a fork of Caffe; use LSTM with recurrent_param"),
    ("Data", "  transform_param { use_gpu_transform: true }\n", 7, "field use_gpu_transform is of NVCaffe; leave it out"),
    ("ConvolutionRistretto", "", 4, "is of Ristretto; use the float32 net"),
]  # fmt: skip
SOLVERS = [
    ("solver_data_type: FLOAT16", "field solver_data_type is of NVCaffe; .*--compute bf16"),
    ("max_epoch: 30", "field max_epoch is of NVCaffe; give max_iter"),
    ("rampup_interval: 100", "field rampup_interval is of NVCaffe; use warmup_iter"),
    ("min_lr: 1e-4", "field min_lr is of NVCaffe; leave it out, and end"),
    ("larc: true", "field larc is of NVCaffe; leave it out, and choose base_lr"),
    ("local_lr_auto: true", "field local_lr_auto is of NVCaffe; leave it out, and choose base_lr"),
    ("engine: 'MKLDNN'", "field engine is of Intel's Caffe; leave it out; --engine"),
    ("disabled_update: true", "field disabled_update is of Intel's Caffe"),
]  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "net.prototxt") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize(("kind", "lines", "line", "said"), LAYERS)
def test_a_layer_of_a_fork_is_refused_by_file_line_layer_and_fork(write, kind, lines, line, said):
    path = write(INPUT + BEHIND.format(kind, lines))
    with pytest.raises((NetError, PrototxtError)) as refused:
        scaffe.Net(path, scaffe.TEST)
    text = str(refused.value)
    assert text.startswith(f"{path}:{line}: layer 'it'")
    assert "\n" not in text
    assert re.search(".*".join(map(re.escape, said.split(".*"))), text), text


def test_the_layers_name_may_stand_behind_what_is_refused(write):
    path = write('layer {\n  reduce_param { axis: 0 }\n  type: "ROIAlign" # a comment with { in it\n  name: "late" }')
    with pytest.raises(PrototxtError, match=rf"^{path}:2: layer 'late': type ROIAlign is of Faster R-CNN's Caffe"):
        read_net(path)


@pytest.mark.parametrize(("field", "said"), SOLVERS)
def test_a_field_of_a_forks_solver_is_refused(write, field, said):
    path = write(f"base_lr: 0.1\n{field}\n", "solver.prototxt")
    with pytest.raises(PrototxtError, match=rf"^{path}:2: {said}"):
        read_solver(path)


def test_fields_of_nvcaffes_net_are_refused(write):
    path = write("name: 'n'\ndefault_forward_type: FLOAT16\n" + INPUT)
    with pytest.raises(PrototxtError, match=f"^{path}:2: field default_forward_type is of NVCaffe; .*--compute bf16"):
        read_net(path)


def test_v1_layers_of_forks_are_refused(write):
    path = write("layers {\n  name: 'x'\n  type: IMAGE_SEG_DATA\n}\n")
    with pytest.raises(PrototxtError, match=rf"^{path}:3: layer 'x': type IMAGE_SEG_DATA is of DeepLab's or PSPNet's"):
        read_net(path)
    path = write("layers {\n  name: 'x' roi_align_param { }\n  type: ROI_ALIGN\n}\n")
    with pytest.raises(PrototxtError, match=rf"^{path}:2: layer 'x': type ROI_ALIGN is of Faster R-CNN's"):
        read_net(path)


def test_other_mistakes_are_said_as_before(write):
    path = write("layer { name: 'x' type: 'ReLU' relu_param { slope: 1 } }")
    with pytest.raises(PrototxtError, match='no field named "slope"'):
        read_net(path)
    with pytest.raises(NetError, match="unknown type 'Zzyzx'; known types: AbsVal"):
        scaffe.Net(write(INPUT + BEHIND.format("Zzyzx", "")), scaffe.TEST)
    net = text_format.Parse(INPUT + BEHIND.format("ROIAlign", ""), NetParameter())
    with pytest.raises(NetError, match="^layer 'it': type ROIAlign is of Faster R-CNN's Caffe"):
        scaffe.Net(net, scaffe.TEST)


def test_a_layer_that_the_phase_leaves_out_is_not_refused(write):
    path = write(INPUT + BEHIND.format("ROIAlign", "  include { phase: TRAIN }\n"))
    assert scaffe.Net(path, scaffe.TEST).outputs == ["in"]
    with pytest.raises(NetError, match="ROIAlign"):
        scaffe.Net(path, scaffe.TRAIN)


def test_a_solvers_net_is_refused_by_its_line(write):
    net = write(INPUT + BEHIND.format("ROIAlign", "  include { phase: TEST }\n"))
    path = write(
        f'net: "{net}" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 test_iter: 1 test_interval: 1', "s.prototxt"
    )
    with pytest.raises(NetError, match=f"^{net}:4: layer 'it': type ROIAlign"):
        scaffe.get_solver(path)


@pytest.mark.parametrize("row", forks.ROWS, ids=lambda row: (row.types or row.fields)[:30])
def test_a_row_names_what_scaffe_does_not_have(row):
    """Of our own messages and layer types no row has any, so that nothing of Caffe's is called a fork's."""
    assert not {*row.types.split()} & {*scaffe.layers.known_types()}
    for message, name in forks._fields(row):
        if "*" in message + name:
            continue
        outer, _, inner = message.partition(".")
        descriptor = caffe_pb2.DESCRIPTOR.message_types_by_name[outer]
        known = descriptor.enum_types_by_name[inner].values_by_name if inner else descriptor.fields_by_name
        assert name not in known
    assert row.use


def test_no_field_of_caffes_is_in_a_pattern():
    for message in caffe_pb2.DESCRIPTOR.message_types_by_name.values():
        for field in message.fields:
            assert field.name == "engine" or forks.of_field(message.name, field.name) is None
    for kind in V1LayerParameter.DESCRIPTOR.enum_types_by_name["LayerType"].values_by_name:
        assert forks.of_type(kind) is None


def binary(text: str, number: int) -> bytes:
    """Return a binary net with one more field, of bytes, in its last layer."""
    net = text_format.Parse(text, NetParameter())
    last = net.layer[-1].SerializeToString() + number_and_bytes(number, b"\x08\x01")
    del net.layer[-1]
    return net.SerializeToString() + number_and_bytes(100, last)


def number_and_bytes(number: int, content: bytes) -> bytes:
    key = number << 3 | 2
    assert len(content) < 128
    return bytes([key & 127 | 128, key >> 7, len(content)]) + content


def test_a_binary_net_of_a_fork_is_not_written_without_its_fields(tmp_path):
    for kind, said in (("ROIAlign", "layer 'it': type ROIAlign is of Faster R-CNN's Caffe"),
                       ("Unknown", r"layer 'it' \(Unknown\): field number 888 is of a fork of Caffe")):  # fmt: skip
        (tmp_path / "old.caffemodel").write_bytes(binary(INPUT + BEHIND.format(kind, ""), 888))
        with pytest.raises(PrototxtError, match=f"old.caffemodel: {said}"):
            upgrade_net_file(tmp_path / "old.caffemodel", tmp_path / "new.prototxt")
        assert not (tmp_path / "new.prototxt").exists()


def test_a_binary_net_of_a_fork_without_fields_of_its_own_is_written(tmp_path):
    net = text_format.Parse(INPUT + BEHIND.format("ROIAlign", ""), NetParameter())
    (tmp_path / "old.caffemodel").write_bytes(net.SerializeToString())
    upgrade_net_file(tmp_path / "old.caffemodel", tmp_path / "new.prototxt")
    assert 'type: "ROIAlign"' in (tmp_path / "new.prototxt").read_text()


BATCH_NORM = INPUT + BEHIND.format("BatchNorm", "")


def test_weights_of_a_fork_serve_the_layers_that_fit(tmp_path):
    text = INPUT + BEHIND.format("InnerProduct", "inner_product_param { num_output: 2 }")
    net = scaffe.Net(text_format.Parse(text, NetParameter()), scaffe.TEST)
    net.params["it"][0].data[...] = 3
    net.save(str(tmp_path / "w.caffemodel"))
    stored = NetParameter.FromString((tmp_path / "w.caffemodel").read_bytes())
    stored.ClearField("sealed")
    stored.ClearField("checksum")
    for layer in stored.layer:
        for blob in layer.blobs:
            blob.ClearField("checksum")
    other = LayerParameter(name="prior", type="PriorBox").SerializeToString() + number_and_bytes(203, b"\x08\x01")
    (tmp_path / "fork.caffemodel").write_bytes(stored.SerializeToString() + number_and_bytes(100, other))
    net.params["it"][0].data[...] = 0
    net.copy_from(str(tmp_path / "fork.caffemodel"))
    np.testing.assert_array_equal(net.params["it"][0].data, 3)


def test_batch_norm_of_nvcaffe_has_a_hint_in_the_error_about_its_blobs(tmp_path):
    net = scaffe.Net(text_format.Parse(BATCH_NORM, NetParameter()), scaffe.TEST)
    stored = NetParameter()
    layer = stored.layer.add(name="it", type="BatchNorm")
    for _ in range(5):
        layer.blobs.add(data=[1, 1, 1]).shape.dim.append(3)
    (tmp_path / "w.caffemodel").write_bytes(stored.SerializeToString())
    with pytest.raises(WeightsError, match="3 parameter blobs in the net, 5 in the file, as in NVCaffe or .*Scale"):
        net.copy_from(str(tmp_path / "w.caffemodel"))


# Intel's engines, in the enum of a layer's own message and in the string of any layer or of the net.

ENUM, STRING, NET = (
    lambda engine: INPUT + BEHIND.format("ReLU", f"  relu_param {{ engine: {engine} }}\n"),
    lambda engine: INPUT + BEHIND.format("ReLU", f'  engine: "{engine}"\n'),
    lambda engine: f'engine: "{engine}"\n' + INPUT + BEHIND.format("ReLU", ""),
)


@pytest.mark.parametrize("spelling", [ENUM, STRING, NET])
@pytest.mark.parametrize("engine", ["CAFFE", "CUDNN", "MKLDNN"])
def test_engines_are_understood(write, caplog, spelling, engine):
    caplog.set_level(logging.INFO, "scaffe")
    net = scaffe.Net(write(spelling(engine)), scaffe.TEST, compute=scaffe.Compute(device="cpu"))
    net.blobs["in"].data[...] = np.linspace(-1, 1, 96).reshape(2, 3, 4, 4)
    np.testing.assert_array_equal(net.forward()["it"], np.maximum(net.blobs["in"].data, 0))
    said = [line for line in caplog.messages if "engine: " in line]
    count = "2 layer(s)" if spelling is NET else "1 layer(s)"
    onednn = net.engine.name == "onednn"
    assert said == {
        "CAFFE": [line for line in said if "computes in numpy: it says engine: CAFFE" in line] if onednn else [],
        "CUDNN": [f"engine: CUDNN of {count} has no effect: {net.engine.name} computes them"],
        "MKLDNN": [] if onednn else [f"engine: MKLDNN of {count} has no effect: {net.engine.name} computes them"],
    }[engine]  # fmt: skip
    assert bool(said) == (engine == "CUDNN" or onednn == (engine == "CAFFE"))


def test_without_onednn_its_engine_is_a_line_of_the_log(write, caplog):
    caplog.set_level(logging.INFO, "scaffe")
    compute = scaffe.Compute(device="cpu", engine="reference")
    scaffe.Net(write(STRING("MKLDNN:CPU")), scaffe.TEST, compute=compute)
    assert "engine: MKLDNN of 1 layer(s) has no effect: reference computes them" in caplog.messages


@pytest.mark.parametrize("spelling", [STRING, NET])
def test_another_engine_is_refused(write, spelling):
    with pytest.raises(PrototxtError, match='engine "DLA" is of Intel\'s Caffe; write MKLDNN, CUDNN or CAFFE'):
        scaffe.Net(write(spelling("DLA")), scaffe.TEST)


def test_the_line_of_each_layer_is_found():
    text = 'name: "n" layer { name: "a" # layer {\n type: "x" }\nlayer <\n name: \'b\' include { phase: TEST }\n>'
    found = [(layer.text("name"), layer.first[0], layer.last[0], layer.line("type")) for layer in layers(text)]
    assert found == [("a", 1, 2, 2), ("b", 3, 5, 3)]
    assert [layer.text("name") for layer in layers('layer { name: "a" bottom: "unclosed')] == ["a"]
