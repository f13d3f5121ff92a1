"""Zero bytes in the strings of messages and prototxt files: refused wherever they stand."""

import pytest
from google.protobuf import text_format

import scaffe
from scaffe.errors import NetError, PrototxtError, ScaffeError
from scaffe.proto import LayerParameter, NetParameter, SolverParameter
from scaffe.proto.files import parse_text
from scaffe.proto.strings import check
from scaffe.proto.upgrade_v0 import put

STRINGS = [
    (message.name, field.name)
    for message in LayerParameter.DESCRIPTOR.fields
    if message.message_type is not None and message.name != "blobs"
    for field in message.message_type.fields
    if field.type == field.TYPE_STRING
]


@pytest.mark.parametrize(("message", "field"), STRINGS)
def test_every_string_of_a_layer_is_looked_at(message, field):
    net = NetParameter(layer=[LayerParameter(name="a")])
    inner = getattr(net.layer[0], message)
    put(inner.add() if hasattr(inner, "add") else inner, field, "x")
    check(net)
    text = text_format.MessageToString(net).replace('"x"', r'"x\000"')
    with pytest.raises(PrototxtError, match=rf"^f: layer 'a': {message}.*{field}.* 'x\\x00' has a zero byte in it"):
        parse_text(text.encode(), "f", NetParameter)


def test_a_net_made_in_python_is_refused_by_layer_and_field():
    net = NetParameter(layer=[LayerParameter(name="a", type="Data", top=["d"], data_param={"source": "d\0b"})])
    with pytest.raises(NetError, match=r"^layer 'a': data_param.source 'd\\x00b' has a zero byte in it"):
        scaffe.Net(net, scaffe.TRAIN)


@pytest.mark.parametrize("field", ["snapshot_prefix", "type", "regularization_type"])
def test_a_solver_made_in_python_is_refused_by_field(field):
    param = SolverParameter(base_lr=1, lr_policy="fixed", **{field: "a\0b"})
    with pytest.raises(ScaffeError, match=rf"^{field} 'a\\x00b' has a zero byte in it"):
        scaffe.Solver(param)
