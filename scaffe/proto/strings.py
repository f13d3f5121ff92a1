"""Strings in messages: none may hold a zero byte, which no layer name and no file name has."""

from __future__ import annotations

import os

from google.protobuf.message import Message

from scaffe.errors import ScaffeError
from scaffe.proto.scalars import scalars


def check(message: Message, kind: type[ScaffeError] = ScaffeError, path: str | os.PathLike[str] = "") -> None:
    """Raise an error of type `kind` for a string in a message that holds a zero byte; `path` is the message's file."""
    for scalar in scalars(message):
        if scalar.field.type == scalar.field.TYPE_STRING and "\0" in scalar.value:
            file = f"{path}: " if path else ""
            raise kind(f"{file}{scalar.where} {scalar.value!r} has a zero byte in it; remove the byte")
