"""Names that are near a wrong one: offered, and where none is near, not."""

from __future__ import annotations

import pytest

import scaffe
from scaffe.errors import ScaffeError
from scaffe.layers.layer import known_types
from scaffe.near import near
from scaffe.proto import misspelt

FIELD = 'Message type "scaffe.{}" has no field named "{}".'


@pytest.mark.parametrize(
    ("given", "known", "meant"),
    [
        ("kernal_size", ["pad", "kernel_size", "kernel_h"], "kernel_size"),  # a wrong letter
        ("convolution", known_types(), "Convolution"),  # capitals
        ("SoftmaxLoss", known_types(), "SoftmaxWithLoss"),  # a name of Caffe's V1 layers
        ("SC_OBR", ["SC-B", "SC-OB", "SC-OBR"], "SC-OBR"),  # the other line between the words
        ("SDG", ["AdaGrad", "SGD"], "SGD"),  # two letters swapped in a short word
    ],
)
def test_the_nearest_name_is_offered(given, known, meant):
    assert near(given, known, "known") == f"; did you mean '{meant}'?"


@pytest.mark.parametrize("given", ["Dense", "Linear", "Bilinear", "GroupNorm", "x", ""])
def test_where_no_name_is_near_none_is_offered(given):
    assert near("foo_param", ["pool_param", "prelu_param", "power_param"]) == ""
    assert near(given, known_types()) == ""
    assert near(given, ["a", "b"], "known types") == "; known types: a b"


@pytest.mark.parametrize(
    ("message", "field", "said"),
    [
        ("ConvolutionParameter", "filler", ""),  # weight_filler or bias_filler
        ("LayerParameter", "weight_filler", "; it is written in convolution_param { }"),
        ("LayerParameter", "mirror", "; it is written in transform_param { }"),
        ("LayerParameter", "weight_decay", "; write param { decay_mult: }"),
        ("ConvolutionParameter", "lr_mult", "; it is written in param { }, outside of the braces that it is in"),
        ("PoolingParameter", "top", "; it is written outside of the braces that it is in"),
        ("SolverParameter", "learning_rate", ""),
        ("UpsampleParameter", "stride", "; known: scale scale_h scale_w pad_out_h pad_out_w upsample_h upsample_w"),
        ("SolverParameter", "max_iters", "; did you mean 'max_iter'?"),
    ],
)
def test_a_field_in_the_wrong_place_is_sent_to_the_right_one(message, field, said):
    assert misspelt.hint(FIELD.format(message, field), "Convolution") == said


def test_python_names_are_offered_as_prototxts_are():
    with pytest.raises(AttributeError, match="'InnerProdukt'; did you mean 'InnerProduct'"):
        _ = scaffe.layers.InnerProdukt
    with pytest.raises(AttributeError, match="'Poling'; did you mean 'Pooling'"):
        _ = scaffe.spec.params.Poling
    with pytest.raises(ScaffeError, match="unknown field 'kernal_size'; did you mean 'kernel_size'"):
        scaffe.layers.Pooling(scaffe.layers.Input(), kernal_size=2)
    with pytest.raises(ScaffeError, match="FillerParameter has no field 'typ'; did you mean 'type'"):
        scaffe.layers.InnerProduct(scaffe.layers.Input(), num_output=2, weight_filler=dict(typ="xavier"))
    with pytest.raises(ScaffeError, match="unknown preset 'scaffe'; did you mean 's-caffe'"):
        scaffe.get_solver("solver.prototxt", preset="scaffe")
    with pytest.raises(ScaffeError, match="unknown default 'sede'; did you mean 'seed'"):
        scaffe.set_defaults(sede=3)
