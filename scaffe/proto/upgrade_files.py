"""Upgrade of files to Caffe's present form, as by Caffe's tools upgrade_net_proto_text and the like."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from google.protobuf import text_format
from google.protobuf.message import Message

from readers.files import Part
from scaffe.errors import PrototxtError
from scaffe.files.atomic import write_atomically
from scaffe.proto import NetParameter, SolverParameter, blobs, fork_numbers, refusals
from scaffe.proto.files import is_text, parse_binary, parse_text, read_bytes, read_text
from scaffe.proto.hdf5 import is_hdf5
from scaffe.proto.unchanged import unchanged
from scaffe.proto.upgrade import upgrade_net, upgrade_solver_type

log = logging.getLogger("scaffe")
FORMS = ("text", "binary")
_TEXT, _BINARY = (".prototxt", ".txt"), (".caffemodel", ".binaryproto")


def upgrade_net_file(old: str | os.PathLike[str], new: str | os.PathLike[str], form: str | None = None) -> None:
    """Read the net in the file `old`, text or binary, and write it to `new` in the present form.

    `form` is text or binary. Without it the suffix of `new` selects text (.prototxt) or binary (.caffemodel); without
    one the form is that of `old`. Raise PrototxtError if `old` cannot be read or upgraded; nothing is written then.
    """
    content = read_bytes(old)
    if is_hdf5(content):
        raise PrototxtError(f"{old}: an HDF5 file has no old forms to upgrade")
    text = is_text(content)
    net = parse_text(content, old, NetParameter) if text else unchanged(content, old, _decode)
    if not text:
        fork_numbers.translate(net, old)
    refusals.check_binary(net, old)
    _write(new, upgrade_net(net, str(old)), form == "text" if form else _as_text(new, text))


def _decode(content: bytes, path: str | os.PathLike[str]) -> NetParameter:
    return parse_binary(content, path, NetParameter)


def upgrade_solver_file(old: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
    """Read the solver in the prototxt `old` and write it to `new` in the present form. Raise as upgrade_net_file."""
    _write(new, upgrade_solver_type(read_text(old, SolverParameter), str(old)), True)


def _as_text(path: str | os.PathLike[str], otherwise: bool) -> bool:
    name = os.fspath(path)
    return name.endswith(_TEXT) or (otherwise and not name.endswith(_BINARY))


def _write(path: str | os.PathLike[str], message: Message, as_text: bool) -> None:
    if isinstance(message, NetParameter):
        message.ClearField("checksum")  # of the old file
    write_atomically(path, text_format.MessageToString(message).encode() if as_text else _binary(message))
    log.info("Wrote %s", path)


def _binary(message: Message) -> Sequence[Part]:
    if isinstance(message, NetParameter) and message.sealed:
        message.ClearField("sealed")
        parts = [NetParameter(sealed=True).SerializeToString(), message.SerializeToString()]  # see checksums.py
        return blobs.sealed(parts, NetParameter.CHECKSUM_FIELD_NUMBER)
    return [message.SerializeToString()]
