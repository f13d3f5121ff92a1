"""The net to fine-tune: new scores, old layers."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

import scaffe
from scaffe import models
from scaffe.errors import ScaffeError
from scaffe.fine_tuning import net as nets
from scaffe.fine_tuning.net import Base, PictureSource
from scaffe.proto import NetParameter, TransformationParameter


@pytest.fixture
def source(tmp_path):
    (tmp_path / "list").write_text("a.png 0\n" * 4)
    return PictureSource(
        str(tmp_path), *[str(tmp_path / "list")] * 2, (32, 32), False, TransformationParameter(), True, 2, 2
    )


def parse(text):
    return text_format.Parse(text, NetParameter())


def shape_of(name, layer, net):
    return {one.name: one for one in net.layers}[layer].blobs[0].shape


@pytest.mark.parametrize("kind", ["train_val", "deploy"])
@pytest.mark.parametrize("name", ["cifar10_quick", "googlenet", "nin"])
def test_a_net_of_the_zoo_gets_new_scores(name, kind, source, monkeypatch):
    model = models.get(name)
    base = Base(model.train_val(data="input") if kind == "train_val" else model.deploy(), name)
    made = nets.train_val(base, source, 3, True, "new")
    heads = [layer for layer in made.layer if layer.name.endswith("_new")]
    assert len(heads) == (3 if (name, kind) == ("googlenet", "train_val") else 1)
    for layer in heads:
        assert (layer.inner_product_param.num_output or layer.convolution_param.num_output) == 3
        assert [spec.lr_mult for spec in layer.param] == [10, 20]
    assert [layer.type for layer in made.layer].count("SoftmaxWithLoss") == len(heads)
    deploy = scaffe.Net(nets.deploy(base, model.shape, 3, True, "new"), scaffe.TEST)
    assert deploy.blobs["prob"].shape[:2] == (1, 3) and deploy.outputs == ["prob"]


def test_other_layers_stay_as_they_are_and_have_fillers(source):
    base = Base(models.get("lenet").deploy(), "lenet")
    for layer in base.param.layer:
        layer.convolution_param.ClearField("weight_filler") if layer.type == "Convolution" else None
    layers = {layer.name: layer for layer in base.layers(3, False)}
    assert layers["conv1"].convolution_param.weight_filler.type == "xavier"
    assert layers["ip2"].inner_product_param.num_output == 3 and layers["ip2"].param[0].lr_mult == 1
    assert layers["ip1"].inner_product_param.num_output == 500


@pytest.mark.parametrize("is_new", [False, True])
def test_scores_share_no_parameters(is_new):
    shared = 'type: "InnerProduct" param { name: "w" } param { name: "b" } inner_product_param { num_output: 4 }'
    text = 'layer { name: "d" type: "Input" top: "x" } '
    text += f'layer {{ name: "one" bottom: "x" top: "y" {shared} }} '
    text += f'layer {{ name: "two" bottom: "y" top: "z" {shared} }}'
    one, two = Base(parse(text), "net").layers(3, is_new)
    assert [spec.name for spec in one.param] == ["w", "b"] and [spec.name for spec in two.param] == ["", ""]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('layer { name: "r" type: "ReLU" bottom: "x" top: "y" }', "no data or Input layer"),
        ('layer { name: "d" type: "Input" top: "x" }', "no layers behind its data"),
        (
            'layer { name: "d" type: "Input" top: "x" top: "t" } '
            'layer { name: "l" type: "EuclideanLoss" bottom: "x" bottom: "t" top: "l" }',
            "layer 'l', is no SoftmaxWithLoss",
        ),
        (
            'layer { name: "d" type: "Input" top: "x" } layer { name: "r" type: "ReLU" bottom: "x" top: "y" }',
            "no InnerProduct or Convolution leads to 'y'",
        ),
    ],
)
def test_a_net_that_classifies_nothing_is_an_error(text, said):
    with pytest.raises(ScaffeError, match=f"net.prototxt: .*{said}"):
        Base(parse(text), "net.prototxt")
