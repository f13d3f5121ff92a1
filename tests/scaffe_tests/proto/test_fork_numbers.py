"""Fields of forks in binary nets: files as each fork writes them are read by their numbers, or refused."""

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe
from scaffe.errors import PrototxtError
from scaffe.proto import LayerParameter, NetParameter, blobs, fork_numbers
from scaffe.proto.caffe_pb2 import BNParameter
from scaffe.proto.files import read_net
from scaffe.proto.upgrade_files import upgrade_net_file

INPUT = 'name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 dim: 4 dim: 4 } }'
ONE, TWO = b"\x08\x01", b"\x08\x02"  # field 1 of a message, a whole number
PSPNETS = b"\x0a\x05\x15\x00\x00\x40\x40\x28\x01"  # BN's slope_filler { value: 3 } and frozen, as PSPNet numbers them


def file_of(path, kind, bottoms, number, payload):
    """Write a net whose layer has a field that a fork numbers so; return the file."""
    first = text_format.Parse(INPUT, LayerParameter())
    layer = LayerParameter(name="it", type=kind, bottom=["x"] * bottoms, top=["y"])
    layer.blobs.add(data=[1, 2]).shape.dim.append(2)
    content = layer.SerializeToString() + blobs.field(number, payload)
    net = blobs.field(100, first.SerializeToString()) + blobs.field(100, content)
    (path / "fork.caffemodel").write_bytes(net)
    return path / "fork.caffemodel"


@pytest.mark.parametrize(
    ("kind", "bottoms", "number", "payload", "expected"),
    [
        ("Reorg", 1, 147, TWO, "reorg_param { stride: 2 }"),
        ("Reorg", 1, 149, TWO, "reorg_param { stride: 2 }"),
        ("Reorg", 1, 159, TWO, "reorg_param { stride: 2 }"),
        ("ShuffleChannel", 1, 159, TWO, "shuffle_channel_param { group: 2 }"),
        ("ShuffleChannel", 1, 164, TWO, "shuffle_channel_param { group: 2 }"),
        ("Upsample", 2, 137, TWO, "upsample_param { scale: 2 }"),
        ("Upsample", 2, 147, TWO, "upsample_param { scale: 2 }"),
        ("Upsample", 1, 149, TWO, "upsample_param { scale: 2 }"),
        ("Interp", 1, 143, TWO, "interp_param { height: 2 }"),
        ("Interp", 1, 153, TWO, "interp_param { height: 2 }"),
        ("Normalize", 1, 149, ONE, "norm_param { across_spatial: true }"),
        ("Permute", 1, 202, TWO, "permute_param { order: 2 }"),
        ("ROIPooling", 2, 147, TWO, "roi_pooling_param { pooled_h: 2 }"),
        ("DetectionOutput", 3, 204, TWO, "detection_output_param { num_classes: 2 }"),
        ("BN", 1, 45, b"\x18\x01", "bn_param { bn_mode: INFERENCE }"),
        ("BN", 1, 152, PSPNETS, "bn_param { slope_filler { value: 3 } frozen: true }"),
        ("BN", 1, 137, PSPNETS, "bn_param { slope_filler { value: 3 } frozen: true }"),
    ],
)
def test_a_forks_field_is_told_by_layer_type_and_number(tmp_path, kind, bottoms, number, payload, expected):
    old = file_of(tmp_path, kind, bottoms, number, payload)
    upgrade_net_file(old, tmp_path / "new.caffemodel")
    layer = NetParameter.FromString((tmp_path / "new.caffemodel").read_bytes()).layer[-1]
    assert list(layer.blobs[0].data) == [1, 2]
    layer.ClearField("blobs")
    wanted = text_format.Parse(expected, LayerParameter(name="it", type=kind, bottom=["x"] * bottoms, top=["y"]))
    assert layer == wanted
    upgrade_net_file(old, tmp_path / "new.prototxt")
    assert expected.split(" ")[0] in (tmp_path / "new.prototxt").read_text()


def test_what_was_written_is_read_and_runs(tmp_path):
    upgrade_net_file(file_of(tmp_path, "Reorg", 1, 149, TWO), tmp_path / "new.prototxt", "text")
    net = read_net(tmp_path / "new.prototxt")
    net.layer[-1].ClearField("blobs")
    built = scaffe.Net(net, scaffe.TEST)
    assert built.forward()["y"].shape == (2, 16, 2, 2)


@pytest.mark.parametrize(
    ("kind", "bottoms", "number", "said"),
    [
        ("DetectionOutput", 1, 204, "field number 204 of a layer with 1 bottoms is of a Caffe with YOLO"),
        ("DetectionOutput", 2, 204, "is of SSD's Caffe or a Caffe with YOLO"),
        ("Upsample", 1, 137, "is of SegNet's or ENet's Caffe"),
        ("Reorg", 1, 888, "field number 888 is of a fork of Caffe"),
    ],
)
def test_what_is_no_ones_or_two_forks_is_refused(tmp_path, kind, bottoms, number, said):
    with pytest.raises(PrototxtError, match=rf"fork.caffemodel: layer 'it' \({kind}\): .*{said}.*prototxt"):
        upgrade_net_file(file_of(tmp_path, kind, bottoms, number, TWO), tmp_path / "new.prototxt")
    assert not (tmp_path / "new.prototxt").exists()


def test_our_own_files_are_read_as_they_are(tmp_path):
    """Our numbers of fields that forks number differently are none of a fork's."""
    names = [row.field for row in fork_numbers.ROWS if row.field]
    for name in names:
        number = LayerParameter.DESCRIPTOR.fields_by_name[name].number
        kinds = [row for row in fork_numbers.ROWS if str(number) in row.numbers.split()]
        assert all(row.field in (name, "") for row in kinds)
    layer = LayerParameter(name="bn", type="BN", bn_param=BNParameter(frozen=True))
    net = NetParameter(layer=[text_format.Parse(INPUT, LayerParameter()), layer])
    (tmp_path / "ours.caffemodel").write_bytes(net.SerializeToString())
    upgrade_net_file(tmp_path / "ours.caffemodel", tmp_path / "again.caffemodel")
    assert NetParameter.FromString((tmp_path / "again.caffemodel").read_bytes()).layer[-1] == layer
    np.testing.assert_array_equal(net.layer[-1].bn_param.frozen, True)


@pytest.mark.parametrize(
    ("kind", "number", "payload"),
    [("BN", 137, b"\x80\x01\x01"), ("BN", 137, b"\xe0\x12\x01"), ("ROIPooling", 150, b"hello")],
)
def test_a_message_that_no_fork_known_here_writes_is_refused(tmp_path, kind, number, payload):
    """Fields above 15, or no fields at all, under the number of a fork's field."""
    with pytest.raises(PrototxtError, match=rf"fork.caffemodel: layer 'it' \({kind}\): its fields are none of a fork"):
        upgrade_net_file(file_of(tmp_path, kind, 1, number, payload), tmp_path / "new.prototxt")
