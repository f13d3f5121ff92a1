"""Refusals of files of Caffe's forks, in one line: file, line, layer, fork, and what to use instead."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from readers.files import read_input
from scaffe.errors import PrototxtError
from scaffe.proto import LayerParameter, NetParameter
from scaffe.proto.forks import FIVE, INTEL, NVIDIA, OTHER, Fork, of_field, of_type
from scaffe.proto.misspelt import no_field, no_value
from scaffe.proto.places import Position, layer_at, layers

ENGINES = ("", "CAFFE", "CUDNN", "MKLDNN")


def of_parser(text: str, error: str, position: Position) -> str:
    """Return the line that refuses a prototxt for what its parser's `error` names, "" where no fork has it."""
    layer = layer_at(text, position)
    name, kind = (layer.text("name"), layer.text("type")) if layer else ("", "")
    field, value = no_field(error), no_value(error)
    if value and value[0] == "V1LayerParameter.LayerType":
        kind = value[1]
    found = field or value
    if not found:
        return ""
    if row := of_type(kind):
        return _line(f"type {kind}", row, name)
    row = of_field(found[0].removeprefix("V1"), found[1])
    return _line(f"{'field' if field else 'value'} {found[1]}", row, name, kind) if row else ""


def of_layer(layer: LayerParameter, path: str | os.PathLike[str] = "") -> str:
    """Return the line that refuses a layer whose type is a fork's, "" for other types; `path` is its prototxt."""
    row = of_type(layer.type)
    return _place(path, layer.name, "type") + _line(f"type {layer.type}", row, layer.name) if row else ""


def check_engines(net: NetParameter, path: str | os.PathLike[str]) -> None:
    """Raise PrototxtError for a field `engine` of Intel's, of a layer or the net, that names none of ENGINES."""
    parts: Iterable[Any] = (net, *net.layer)
    for part in parts:
        if part.engine.partition(":")[0] not in ENGINES:
            is_layer = isinstance(part, LayerParameter)
            where = _place(path, part.name, "engine") if is_layer else f"{path}: "
            row = Fork(INTEL, "", "", "write MKLDNN, CUDNN or CAFFE, or leave it out")
            names = (part.name, part.type) if is_layer else ("", "")
            raise PrototxtError(where + _line(f'engine "{part.engine}"', row, *names))


def check_binary(net: NetParameter, path: str | os.PathLike[str]) -> None:
    """Raise PrototxtError for a layer of a binary net that has fields which Caffe's format does not have."""
    for layer in net.layer:
        values: list[Any] = [value for field, value in layer.ListFields() if field.name.endswith("_param")]
        unknown = {field.field_number for one in (layer, *values) for field in UnknownFieldSet(one)}  # type: ignore[attr-defined]
        if unknown and (row := of_type(layer.type)):
            raise PrototxtError(f"{path}: {_line(f'type {layer.type}', row, layer.name)}")
        if unknown:
            numbers = ", ".join(map(str, sorted(unknown)))
            row = Fork(OTHER, "", "", "write the net as a prototxt, and remove them there")
            raise PrototxtError(f"{path}: {_line(f'field number {numbers}', row, layer.name, layer.type)}")


def blobs_hint(layer: LayerParameter) -> str:
    """Return what to do about a stored layer whose number of blobs may be a fork's, "" where nothing is known."""
    if layer.type == "BatchNorm" and len(layer.blobs) == 5:
        return f", as in {NVIDIA} or {INTEL}, whose blobs 3 and 4 are a scale and a bias; {FIVE}"
    row = of_type(layer.type)
    return f"; {_line(f'type {layer.type}', row)}" if row else ""


def _line(what: str, row: Fork, layer: str = "", kind: str = "") -> str:
    named = f" ({kind})" if kind else ""
    where = f"layer '{layer}'{named}: " if layer or kind else ""
    return f"{where}{what} is of {row.fork}; {row.use}"


def _place(path: str | os.PathLike[str], name: str, field: str) -> str:
    """Return the file and the line of a layer's field, for the beginning of a message; "" without a path."""
    text = ""
    if path:
        with contextlib.suppress(OSError, ValueError):
            text = read_input(path).decode("utf-8-sig")
    found = [layer.line(field) for layer in layers(text) if layer.text("name") == name]
    return f"{path}:{found[0]}: " if found else f"{path}: " if path else ""
