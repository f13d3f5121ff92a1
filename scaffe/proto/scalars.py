"""The scalar values of a message: one walk for all checks of numbers and strings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from scaffe.proto import BlobProto


class Scalar(NamedTuple):
    """A value that is set in a message: the message's type, the field, its place and the value.

    The place names the layer and the path of fields, such as layer 'ip': param[0].lr_mult.
    """

    message: str
    field: FieldDescriptor
    where: str
    value: Any


def scalars(message: Message, where: str = "") -> Iterator[Scalar]:
    """Iterate over the scalar values of a message and of the messages in it; blobs are left out."""
    for field, value in message.ListFields():
        repeated = hasattr(value, "extend")
        for i, one in enumerate(value if repeated else [value]):
            label = f"{where}{field.name}[{i}]" if repeated else f"{where}{field.name}"
            if not isinstance(one, Message):
                yield Scalar(message.DESCRIPTOR.name, field, label, one)
            elif not isinstance(one, BlobProto):
                yield from scalars(one, _prefix(label, one))


def _prefix(label: str, message: Message) -> str:
    """Return what to put before the names of a message's fields: a layer is known by its name."""
    name = getattr(message, "name", "") if message.DESCRIPTOR.name == "LayerParameter" else ""
    return f"layer '{name}': " if name else f"{label}."
