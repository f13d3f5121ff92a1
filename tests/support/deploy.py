"""A deploy net out of a train net, as people make one by hand."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format

from scaffe.proto import LayerParameter, NetParameter
from scaffe.proto.files import read_net

NEEDS_LABELS = ("Data", "Accuracy", "SoftmaxWithLoss")


def deploy(train: Path, out: Path, batch: int) -> Path:
    """Write CIFAR-10 quick's deploy prototxt: an Input in place of the database, a Softmax of ip2 for the loss."""
    net = read_net(train)
    kept = [layer for layer in net.layer if layer.type not in NEEDS_LABELS]
    shape = f'input_param {{ shape {{ dim: {batch} dim: 3 dim: 32 dim: 32 }} }} name: "data" type: "Input" top: "data"'
    source = text_format.Parse(shape, LayerParameter())
    prob = LayerParameter(name="prob", type="Softmax", bottom=["ip2"], top=["prob"])
    out.write_text(text_format.MessageToString(NetParameter(name=net.name, layer=[source, *kept, prob])))
    return out
