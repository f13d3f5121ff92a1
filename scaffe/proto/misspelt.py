"""What a prototxt's parser does not know: fields, and values of enums, with what was meant where it is near."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence

from google.protobuf.descriptor import Descriptor

from scaffe.near import near
from scaffe.proto import caffe_pb2
from scaffe.proto.places import Position, layer_at

_NO_FIELD = re.compile(r'Message type "scaffe\.(\w+)" has no field named "([^"]+)"')
_NO_VALUE = re.compile(r'Enum type "scaffe\.([\w.]+)" has no value named ["\']?(\w+)')
_PLACE, _QUOTED = re.compile(r"^\d+:\d+ : "), re.compile(r"^'.*': (?=Enum type|Couldn't parse|Value out)", re.S)
_SPELLINGS = {  # of what stands in prototxts but is none: what to write instead
    "found: '[“”‘’„]": '; write plain quotes, "',
    r"Expected string but found: '([A-Za-z_][\w.]*)'": r'; write it in quotes, "\1"',
    "identifier or number, got /": "; a comment begins with #",
    "unicodeescape|Invalid escape": "; write / in paths",
    r'no field named "\d+"': "; a comma ends a value: write the field before each value, and numbers without commas",
}
_MOST = 3  # places of a field that are named
_FEW = 10  # names, of which all that are known are told
_OLD = {"blobs_lr": "param { lr_mult: }", "weight_decay": "param { decay_mult: }"}  # of layers { }, in layer { }


def no_field(error: str) -> tuple[str, str] | None:
    """Return the message and the field that a parser's error names, None for another error."""
    found = _NO_FIELD.search(error)
    return (found[1], found[2]) if found else None


def no_value(error: str) -> tuple[str, str] | None:
    """Return the enum and the value that a parser's error names, None for another error."""
    found = _NO_VALUE.search(error)
    return (found[1], found[2]) if found else None


def line(text: str, error: str, position: Position) -> str:
    """Return a parser's error as a line, without the line of the prototxt `text` that it quotes, with its hint."""
    said = _QUOTED.sub("", _PLACE.sub("", error)).replace('type "scaffe.', 'type "').rstrip(".")
    layer = layer_at(text, position)
    return " ".join(said.split()) + hint(error, layer.text("type") if layer else "")


def hint(error: str, kind: str = "") -> str:
    """Return what to write in place of what a parser's error names, from "; " on; "" where nothing is known.

    `kind` is the type of the layer that the error is in.
    """
    for pattern, text in _SPELLINGS.items():
        if found := re.search(pattern, error):
            return found.expand(text)
    if field := no_field(error):
        message = _message(field[0])
        return _elsewhere(message, field[1], kind) or _near_or_known(field[1], list(message.fields_by_name))
    if value := no_value(error):
        known = _values(value[0])
        if value[1] in known:
            return f"; write it without quotes, {value[1]}"
        if value[0] == "V1LayerParameter.LayerType" and re.search("['\"]", error.partition(" named ")[2]):
            return "; write 'layer {', whose types are strings, in place of 'layers {'"
        return _near_or_known(value[1], known)
    return ""


def _near_or_known(given: str, known: Sequence[str]) -> str:
    """Return the name that is near, else all names where they are few."""
    return near(given, known) or (f"; known: {' '.join(known)}" if 0 < len(known) < _FEW else "")


def _message(name: str) -> Descriptor:
    """Return a message's descriptor: caffe.proto's, or one of datum.proto's."""
    files = caffe_pb2.DESCRIPTOR, *caffe_pb2.DESCRIPTOR.dependencies
    return next(file.message_types_by_name[name] for file in files if name in file.message_types_by_name)


def _values(enum: str) -> list[str]:
    """Return the values of an enum, such as DataParameter.DB."""
    outer, _, inner = enum.rpartition(".")
    within = caffe_pb2.DESCRIPTOR.message_types_by_name[outer] if outer else caffe_pb2.DESCRIPTOR
    return list(within.enum_types_by_name[inner].values_by_name)


def _elsewhere(message: Descriptor, name: str, kind: str) -> str:
    """Return where a field is written that the message does not have, "" where that is nowhere, or in many places."""
    if message.name == "LayerParameter" and name in _OLD:
        return f"; write {_OLD[name]}"
    inside = _inside(message, name)
    first = [field for field in inside if field == "transform_param"]  # those of data layers are of an old form
    own = first or [field for field in inside if field.replace("_", "") == f"{kind.lower()}param"] or inside
    if 0 < len(own) <= _MOST:
        return f"; it is written in {' or '.join(f'{field} {{ }}' for field in own)}"
    around = [each for each in _messages() if message.name in _parts(each)]
    if any(name in _names(each) for each in around):
        return "; it is written outside of the braces that it is in"
    beside = [field for each in around for field in _inside(each, name)]
    return f"; it is written in {beside[0]} {{ }}, outside of the braces that it is in" if len(beside) == 1 else ""


def _inside(message: Descriptor, name: str) -> list[str]:
    """Return the fields of a message whose own messages have a field of that name."""
    return [field.name for field in message.fields if field.message_type and name in _names(field.message_type)]


def _messages() -> Iterable[Descriptor]:
    """Return the messages of Caffe's format in its present form."""
    return [each for name, each in caffe_pb2.DESCRIPTOR.message_types_by_name.items() if not name.startswith("V")]


def _names(message: Descriptor) -> Container[str]:
    return message.fields_by_name


def _parts(message: Descriptor) -> set[str]:
    """Return the names of the messages that are fields of a message."""
    return {field.message_type.name for field in message.fields if field.message_type}
