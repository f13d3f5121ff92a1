"""Numbers in messages and prototxt files that are NaN or infinite: refused wherever they stand."""

import math

import numpy as np
import pytest
from both_engines import build
from google.protobuf import text_format

import scaffe
from scaffe.errors import PrototxtError, ScaffeError
from scaffe.proto import LayerParameter, NetParameter, SolverParameter
from scaffe.proto.files import parse_text
from scaffe.proto.numbers import non_finite
from scaffe.proto.upgrade_v0 import put

NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 } }
"""


REALS = [
    (message.name, field.name)
    for message in LayerParameter.DESCRIPTOR.fields
    if message.message_type is not None and message.name != "blobs"
    for field in message.message_type.fields
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE)
]


@pytest.mark.parametrize("value", [math.nan, 2.5])
@pytest.mark.parametrize(("message", "field"), REALS)
def test_every_real_field_of_a_layer_is_looked_at(message, field, value):
    net = NetParameter(layer=[LayerParameter(name="a")])
    inner = getattr(net.layer[0], message)
    put(inner.add() if hasattr(inner, "add") else inner, field, value)
    assert [scalar.field.name for scalar in non_finite(net)] == [field] * math.isnan(value)


def test_a_net_made_in_python_is_refused_by_layer_and_field():
    param = text_format.Parse(NET, NetParameter())
    param.layer[1].param.add(lr_mult=math.inf)
    with pytest.raises(ScaffeError, match=r"^layer 'ip': param\[0\].lr_mult must be a finite number, got inf$"):
        scaffe.Net(param, scaffe.TRAIN)


def test_a_solver_made_in_python_is_refused_by_field_also_its_nets():
    with pytest.raises(ScaffeError, match="^gamma must be a finite number, got nan$"):
        scaffe.Solver(SolverParameter(base_lr=1, gamma=math.nan))
    param = SolverParameter(base_lr=1, lr_policy="fixed", net_param=text_format.Parse(NET, NetParameter()))
    param.net_param.layer[1].loss_weight.append(-math.inf)
    with pytest.raises(ScaffeError, match=r"^layer 'ip': loss_weight\[0\] must be a finite number, got -inf$"):
        scaffe.Solver(param)


@pytest.mark.parametrize("old", ["layers { name: 'a' type: RELU blobs_lr: nan }", "layers { layer { blobs_lr: nan } }"])
def test_old_forms_are_refused_with_their_own_fields_and_line(old):
    with pytest.raises(PrototxtError, match=r"^f:2: blobs_lr must be a finite number, got nan$"):
        parse_text(f"name: 'nan'\n{old}".encode(), "f", NetParameter)


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_a_clip_may_have_one_bound(engine):
    clip = 'layer { name: "c" type: "Clip" bottom: "x0" top: "y" clip_param { min: 0 max: inf } }'
    x = np.array([[-1, 0, 2], [3e38, -2, 5]], np.float32)
    assert np.array_equal(build(clip, (2, 3), engine=engine).forward(x0=x)["y"], np.maximum(x, 0))
