"""Kinds of files, by their content: which files an output of another kind must not replace."""

from __future__ import annotations

import os

from google.protobuf import text_format

from readers.files import open_input, read_input
from scaffe.errors import ScaffeError
from scaffe.proto import NetParameter, SolverParameter, SolverState, blobs, hdf5
from scaffe.proto.files import is_text

NET, SOLVER, PROTOTXT = "a net's prototxt", "a solver's prototxt", "a prototxt"
WEIGHTS, STATE, DATABASE = "weights", "a solver state", "a database"
HDF5, PICTURE, ARRAY = "an HDF5 file", "a picture", "an array"
_SUFFIXES = {".prototxt": PROTOTXT, ".pbtxt": PROTOTXT, ".caffemodel": WEIGHTS, ".solverstate": STATE}
_PICTURES = b"\x89PNG", b"\xff\xd8\xff", b"%PDF", b"GIF8"
_LMDB = 0xBEEFC0DE.to_bytes(4, "little")  # at byte 16
_LONGEST = 64 << 20  # bytes of a prototxt
_LAYERS = NetParameter.LAYER_FIELD_NUMBER, NetParameter.LAYERS_FIELD_NUMBER


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return the kind of a file by its content, or, where that is damaged, by its name; "" for any other or none."""
    if not os.path.isfile(path) or not os.path.getsize(path):
        return ""
    try:
        found = _by_content(path)
    except OSError:  # not for this user to read
        found = ""
    name = os.fspath(path).lower().removesuffix(".h5")
    return found or next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), "")


def _by_content(path: str | os.PathLike[str]) -> str:
    with open_input(path) as file:
        head = file.read(4096)
    if hdf5.is_hdf5(head):
        return _of_hdf5(path)
    if head[16:20] == _LMDB:
        return DATABASE
    if head.startswith(_PICTURES):
        return PICTURE
    if head.startswith(b"\x93NUMPY"):
        return ARRAY
    if not is_text(head):
        return _of_binary(path)
    return _of_text(read_input(path)) if os.path.getsize(path) <= _LONGEST else ""


def _of_hdf5(path: str | os.PathLike[str]) -> str:
    """Return which of Caffe's files an HDF5 file is, HDF5 for another one, "" without h5py."""
    try:
        with open_input(path) as file:
            return {"iter": STATE, "data": WEIGHTS}.get(hdf5.caffes_part(file, path), HDF5)
    except ScaffeError:
        return ""


def _of_binary(path: str | os.PathLike[str]) -> str:
    with open_input(path) as file:
        try:
            state = blobs.read_fields(file, (SolverState.ITER_FIELD_NUMBER, SolverState.LEARNED_NET_FIELD_NUMBER))
            if SolverState.FromString(state).learned_net and state[:1] == b"\x08":
                return STATE
            file.seek(0)
            return WEIGHTS if any(number in _LAYERS and has_length for number, has_length in blobs.fields(file)) else ""
        except (EOFError, ValueError):
            return ""


def _of_text(content: bytes) -> str:
    """Return whose prototxt a text is, "" for any other text, and one that says nothing."""
    for kind, message in ((NET, NetParameter), (SOLVER, SolverParameter)):
        try:
            if text_format.Parse(content.decode(), message()).ByteSize():
                return kind
        except (text_format.ParseError, UnicodeDecodeError):
            continue
    return ""
