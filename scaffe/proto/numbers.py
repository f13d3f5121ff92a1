"""Numbers in messages: none may be NaN or infinite, such as a prototxt's `lr_mult: nan` and `scale: 1e39`."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from math import isfinite, isinf

import numpy as np
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from scaffe.errors import PrototxtError, ScaffeError
from scaffe.proto.scalars import Scalar, scalars

_REALS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
_MAY_BE_INFINITE = {("ClipParameter", "min"), ("ClipParameter", "max")}  # no bound on that side


def non_finite(message: Message) -> Iterator[Scalar]:
    """Iterate over the values of a message, and of the messages in it, that are not finite; blobs are left out."""
    for scalar in scalars(message):
        if scalar.field.cpp_type in _REALS and not _is_allowed(scalar):
            yield scalar


def _is_allowed(scalar: Scalar) -> bool:
    may_be_infinite = (scalar.message, scalar.field.name) in _MAY_BE_INFINITE
    return isfinite(scalar.value) or (may_be_infinite and isinf(scalar.value))


def check(message: Message, kind: type[ScaffeError] = ScaffeError) -> None:
    """Raise an error of type `kind` for a number in a message that is not finite."""
    for scalar in non_finite(message):
        raise kind(f"{scalar.where} must be a finite number, got {scalar.value:g}")


def check_text(text: str, message: Message, path: str | os.PathLike[str]) -> None:
    """Raise PrototxtError, with file and line, for a number in a prototxt's message that is not finite."""
    found = list(non_finite(message))
    if not found:
        return
    for line, field, token in _values(text, {scalar.field.name for scalar in found}):
        if not isfinite(_single(token)):
            raise PrototxtError(f"{path}:{line}: {field} must be a finite number, got {token}")
    raise PrototxtError(f"{path}: {found[0].where} must be a finite number, got {found[0].value:g}")


def _values(text: str, fields: Container[str]) -> Iterator[tuple[int, str, str]]:
    """Iterate over the line, field and value of each value that a prototxt gives to one of the `fields`."""
    tokens, field = text_format.Tokenizer(text.split("\n")), ""
    while not tokens.AtEnd():
        token, line = tokens.token, tokens.ParseError("").GetLine() or 0  # type: ignore[arg-type]
        tokens.NextToken()
        if tokens.token == ":":
            field = token
        elif field in fields:
            yield line, field, token


def _single(token: str) -> float:
    """Return a token's number in single precision, 0 for a token that is no number."""
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(text_format.ParseFloat(token)))
    except ValueError:
        return 0.0
