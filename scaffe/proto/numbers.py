"""Numbers in messages: none may be NaN or infinite, as a prototxt's `lr_mult: nan` and `scale: 1e39` would be."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from math import isfinite, isinf, isnan
from typing import NamedTuple

import numpy as np
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from scaffe.errors import PrototxtError, ScaffeError
from scaffe.proto import BlobProto

_REALS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
_MAY_BE_INFINITE = {("ClipParameter", "min"), ("ClipParameter", "max")}  # a bound that bounds nothing


class Fault(NamedTuple):
    """A field that is no finite number: its name, where it stands, such as layer 'ip': param[0].lr_mult, its value."""

    field: str
    where: str
    value: float


def faults(message: Message, where: str = "") -> Iterator[Fault]:
    """Iterate over the fields of a message, and of those in it, that are no finite numbers; blobs are left out."""
    for field, value in message.ListFields():
        repeated = hasattr(value, "extend")
        for i, one in enumerate(value if repeated else [value]):
            label = f"{where}{field.name}[{i}]" if repeated else f"{where}{field.name}"
            if isinstance(one, Message) and not isinstance(one, BlobProto):
                yield from faults(one, _within(label, one))
            elif field.cpp_type in _REALS and not _fits(one, (message.DESCRIPTOR.name, field.name)):
                yield Fault(field.name, label, one)


def _within(label: str, message: Message) -> str:
    """Return what to put before the names of a message's fields: a layer is known by its name."""
    is_layer = message.DESCRIPTOR.name == "LayerParameter"
    return f"layer '{message.name}': " if is_layer and message.name else f"{label}."  # type: ignore[attr-defined]


def _fits(value: float, field: tuple[str, str]) -> bool:
    return not isnan(value) and (not isinf(value) or field in _MAY_BE_INFINITE)


def check(message: Message, kind: type[ScaffeError] = ScaffeError) -> None:
    """Raise that kind of error where a field of a message is no finite number."""
    for fault in faults(message):
        raise kind(f"{fault.where} must be a finite number, got {fault.value:g}")


def check_text(text: str, message: Message, path: str | os.PathLike[str]) -> None:
    """Raise PrototxtError, with file and line, where a field of a prototxt's message is no finite number."""
    found = list(faults(message))
    if not found:
        return
    for line, field, token in _values(text, {fault.field for fault in found}):
        if not isfinite(_single(token)):
            raise PrototxtError(f"{path}:{line}: {field} must be a finite number, got {token}")
    raise PrototxtError(f"{path}: {found[0].where} must be a finite number, got {found[0].value:g}")


def _values(text: str, fields: Container[str]) -> Iterator[tuple[int, str, str]]:
    """Iterate over the values that a prototxt gives to fields of those names, with their lines."""
    tokens, field = text_format.Tokenizer(text.split("\n")), ""
    while not tokens.AtEnd():
        token, line = tokens.token, tokens.ParseError("").GetLine() or 0  # type: ignore[arg-type]
        tokens.NextToken()
        if tokens.token == ":":
            field = token
        elif field in fields:
            yield line, field, token


def _single(token: str) -> float:
    """Return the number that a field of single precision takes from a token, 0 for a token that is none."""
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(text_format.ParseFloat(token)))
    except ValueError:
        return 0.0
