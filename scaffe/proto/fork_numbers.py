"""Fields of forks in binary nets: the numbers that each fork gave them, by layer type.

In a prototxt a name tells a field; in a binary file a number, which forks chose for themselves: 149 is Intel's
`engine`, one fork's `reorg_param` and another's `norm_param`. A layer's type tells them apart, and where forks have
different fields of one type, the number of its bottoms. Where that does not tell, the file is refused.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from google.protobuf.message import DecodeError

from scaffe.errors import PrototxtError
from scaffe.proto import LayerParameter, NetParameter, blobs
from scaffe.proto.forks import DEEPLAB, SEGNET, SSD, YOLO

Path = str | os.PathLike[str]


class ForkNumbers(NamedTuple):
    """The numbers of a field in the layers of some types. `bottoms` are those of the fork's layer, 0 for any number.

    `added` is what our numbers of its message's fields are above the fork's. An empty `field` is none of ours.
    """

    types: str
    field: str
    numbers: str
    fork: str = ""
    bottoms: int = 0
    added: int = 0


ROWS = (
    ForkNumbers("BN", "bn_param", "41 45", SEGNET),
    ForkNumbers("BN", "bn_param", "137 152 1137", DEEPLAB, added=1000),
    ForkNumbers("DetectionOutput", "detection_output_param", "204", SSD, bottoms=3),
    ForkNumbers("DetectionOutput", "", "204", YOLO, bottoms=1),
    ForkNumbers("Interp", "interp_param", "143 153 2143"),
    ForkNumbers("Normalize", "norm_param", "149 206"),
    ForkNumbers("PSROIPooling", "psroi_pooling_param", "153 10001"),
    ForkNumbers("Region", "region_param", "149"),
    ForkNumbers("ReLU6", "relu6_param", "211 2060"),
    ForkNumbers("Reorg", "reorg_param", "147 148 149 155 159"),
    ForkNumbers("ROIPooling", "roi_pooling_param", "147 150 154 8266711"),
    ForkNumbers("ShuffleChannel", "shuffle_channel_param", "159 164"),
    ForkNumbers("Upsample", "upsample_param", "137 147", SEGNET, bottoms=2),
    ForkNumbers("Upsample", "upsample_param", "149 150", YOLO, bottoms=1),
)


def translate(net: NetParameter, path: Path) -> None:
    """Give the fields of forks in a binary net our numbers. Raise PrototxtError where two forks' are possible."""
    for layer in net.layer:
        rows = [row for row in ROWS if layer.type in row.types.split()]
        if rows:
            _translate(layer, rows, path)


def _translate(layer: LayerParameter, rows: list[ForkNumbers], path: Path) -> None:
    plain = LayerParameter()
    plain.CopyFrom(layer)
    plain.ClearField("blobs")
    fields = [(_row(layer, rows, number, path), field, inner) for number, field, inner in blobs.split(_bytes(plain))]
    if any(row for row, _, _ in fields):
        content = b"".join(_renumbered(row, inner) if row else field for row, field, inner in fields)
        stored = list(layer.blobs)
        try:
            layer.CopyFrom(LayerParameter.FromString(content))
        except DecodeError:
            raise PrototxtError(
                f"{path}: layer '{layer.name}' ({layer.type}): its fields are none of a fork known here; write "
                "the net as a prototxt, whose fields have names"
            ) from None
        layer.blobs.extend(stored)


def _row(layer: LayerParameter, rows: list[ForkNumbers], number: int, path: Path) -> ForkNumbers | None:
    """Return the row of a field's number, None where it has none. Raise PrototxtError for two, or another fork's."""
    found = [row for row in rows if str(number) in row.numbers.split()]
    fitting = [row for row in found if row.bottoms in (0, len(layer.bottom))]
    if found and (len(fitting) != 1 or not fitting[0].field):
        forks = " or ".join(row.fork for row in fitting or found)
        raise PrototxtError(
            f"{path}: layer '{layer.name}' ({layer.type}): field number {number} of a layer with {len(layer.bottom)} "
            f"bottoms is of {forks}; write the net as a prototxt, whose fields have names"
        )
    return fitting[0] if fitting else None


def _renumbered(row: ForkNumbers, payload: bytes) -> bytes:
    if row.added:
        payload = b"".join(_moved(number, field, row.added) for number, field, _ in blobs.split(payload))
    return blobs.field(LayerParameter.DESCRIPTOR.fields_by_name[row.field].number, payload)


def _moved(number: int, field: bytes, added: int) -> bytes:
    """Return a field of a number below 16 with the number that is `added` higher."""
    return blobs.varint((number + added) << 3 | field[0] & 7) + field[1:]


def _bytes(layer: LayerParameter) -> bytes:
    return bytes(layer.SerializeToString())
