"""Read and write prototxt and binary protobuf files; errors name the file and, in text, the line."""

from __future__ import annotations

import codecs
import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from readers.errors import reason
from readers.files import open_input, read_input
from scaffe.errors import PrototxtError, ScaffeError, WeightsError
from scaffe.proto import NetParameter, SolverParameter, SolverState, blobs, hdf5, misspelt, numbers, refusals, strings
from scaffe.proto.unchanged import unchanged
from scaffe.proto.upgrade import upgrade_net, upgrade_solver

M = TypeVar("M", bound=Message)


def read_bytes(path: str | os.PathLike[str], error_type: type[ScaffeError] = PrototxtError) -> bytes:
    """Return a file's content. Raise `error_type` if it cannot be read."""
    try:
        return read_input(path)
    except ValueError:
        raise error_type(f"{path!r}: a file name cannot hold a zero byte") from None
    except OSError as error:
        where = "" if os.path.isabs(path) else f" (relative to {os.getcwd()})"
        raise error_type(f"{path}: {reason(error)}{where}") from None


def is_text(content: bytes) -> bool:
    """Return whether a file is a prototxt, not a binary message, which has control characters near its start."""
    return not set(content[:4096]) & _CONTROL


_CONTROL = {*range(32), 127} - set(b"\t\n\v\f\r")


def read_text(path: str | os.PathLike[str], message: type[M]) -> M:
    """Parse a prototxt file.

    Raise PrototxtError, with file and line, for text that is no such message, a number that is not finite, or a zero
    byte in a string.
    """
    return parse_text(read_bytes(path), path, message)


def parse_text(content: bytes, path: str | os.PathLike[str], message: type[M]) -> M:
    """Parse the content of the prototxt file `path`. Raise PrototxtError as read_text does."""
    text = _decoded(content, path)
    try:
        parsed = text_format.Parse(text, message())
    except text_format.ParseError as error:
        raise PrototxtError(_not_parsed(text, path, message, error)) from None
    numbers.check_text(text, parsed, path)
    strings.check(parsed, PrototxtError, path)
    return parsed


def _decoded(content: bytes, path: str | os.PathLike[str]) -> str:
    """Return a prototxt's text, without a byte order mark. Raise PrototxtError for another encoding, or no text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise PrototxtError(f"{path}: a text in UTF-16; save it as UTF-8") from None
        if not is_text(content):
            raise PrototxtError(f"{path}: not a prototxt: a binary file") from None
        line = content.count(b"\n", 0, error.start) + 1
        raise PrototxtError(
            f"{path}:{line}: the byte {content[error.start]:#x} is not UTF-8; save it as UTF-8"
        ) from None


def _not_parsed(text: str, path: str | os.PathLike[str], message: type[M], error: text_format.ParseError) -> str:
    """Return the line for a text that is no such message: what it is, or where it is wrong, and what to do."""
    if _is_another(text, message):
        return f"{path}: {_FOR_ANOTHER[message]}"
    line = f":{error.GetLine()}" if error.GetLine() else ""
    at = text, str(error), (error.GetLine() or 0, error.GetColumn() or 0)
    return f"{path}{line}: {refusals.of_parser(*at) or misspelt.line(*at)}"


def _is_another(text: str, message: type[Message]) -> bool:
    """Say whether a text that is no such message is a solver in the place of a net, or a net in that of a solver."""
    other = {NetParameter: SolverParameter, SolverParameter: NetParameter}.get(message)
    with contextlib.suppress(text_format.ParseError):
        return other is not None and text_format.Parse(text, other()).ByteSize() > 0
    return False


_FOR_ANOTHER: dict[type[Message], str] = {
    NetParameter: "a solver where a net is expected; give the file that it names as net",
    SolverParameter: "a net where a solver is expected; give the prototxt that names it as net",
}


def parse_binary(content: bytes, path: str | os.PathLike[str], message: type[M]) -> M:
    """Parse the content of the binary file `path`. Raise PrototxtError if it is not such a message."""
    try:
        return message.FromString(content)
    except DecodeError:
        raise PrototxtError(f"{path}: not a binary {message.DESCRIPTOR.name} ({len(content)} bytes)") from None


def read_net(path: str | os.PathLike[str]) -> NetParameter:
    """Return the net of a prototxt file, upgraded from old forms. Raise PrototxtError if it has no layers."""
    net = upgrade_net(read_text(path, NetParameter), str(path))
    if not net.layer:
        raise PrototxtError(f"{path}: no layers in it; expected the prototxt of a net")
    refusals.check_engines(net, path)
    return net


def read_solver(path: str | os.PathLike[str]) -> SolverParameter:
    """Return the solver of a prototxt file, upgraded from old fields."""
    return upgrade_solver(read_text(path, SolverParameter), os.fspath(path))


def read_weights(
    path: str | os.PathLike[str], shapes: Mapping[str, Sequence[hdf5.Shape]] | None = None
) -> NetParameter:
    """Return the net and blobs of a .caffemodel, binary or HDF5; HDF5 holds names and blobs only.

    Given the `shapes` of a net's parameters, by layer, values of other shapes may be left out. Raise WeightsError if
    the file cannot be read, PrototxtError if it is no .caffemodel or has changed since it was written.
    """
    decode = partial(_decode_weights, shapes=shapes)
    return upgrade_net(unchanged(read_bytes(path, WeightsError), path, decode), str(path))


def read_weights_hdf5(
    path: str | os.PathLike[str], shapes: Mapping[str, Sequence[hdf5.Shape]] | None = None
) -> NetParameter:
    """Return the names and blobs of an HDF5 file of weights, as read_weights does. Raise PrototxtError for another."""
    decode = partial(hdf5.decode_weights, shapes=shapes)
    return upgrade_net(unchanged(read_bytes(path, WeightsError), path, decode), str(path))


def _decode_weights(
    content: bytes, path: str | os.PathLike[str], shapes: Mapping[str, Sequence[hdf5.Shape]] | None
) -> NetParameter:
    if _looks_like_hdf5(content, path):
        return hdf5.decode_weights(content, path, shapes)
    if _is_solver_state(content):
        raise PrototxtError(f"{path}: {hdf5.STATE_FOR_WEIGHTS}")
    if content and is_text(content):
        raise PrototxtError(f"{path}: a text file where weights are expected; give a .caffemodel")
    net = parse_binary(content, path, NetParameter)
    if not net.layer and not net.layers:
        raise PrototxtError(f"{path}: no layers in it; expected a .caffemodel")
    return net


def read_solver_state(path: str | os.PathLike[str], shapes: Sequence[hdf5.Shape] | None = None) -> SolverState:
    """Return the solver state of a .solverstate, binary or HDF5.

    Given the expected `shapes` of its history, values of other shapes may be left out. Raise WeightsError if the file
    cannot be read, PrototxtError if it is no .solverstate, has changed since it was written, or holds impossible
    numbers.
    """
    state = unchanged(read_bytes(path, WeightsError), path, partial(_decode_solver_state, shapes=shapes))
    _check(state, path)
    return state


def read_origin(path: str | os.PathLike[str]) -> SolverState:
    """Return a .solverstate's `run` and `order`, perhaps with other fields, without reading its history.

    Raise WeightsError if the file cannot be read, PrototxtError if it is no .solverstate, SnapshotError without h5py.
    """
    try:
        with open_input(path) as file:
            is_hdf5 = hdf5.is_hdf5(file.read(8))
            file.seek(0)
            if is_hdf5 or os.fspath(path).endswith(".h5"):
                return hdf5.read_origin(file, path)
            kept = blobs.read_fields(file, _ORIGIN)
        if kept[:1] != b"\x08":
            raise PrototxtError(f"{path}: not a solver state, or a damaged one")
        return SolverState.FromString(kept)
    except (EOFError, DecodeError):
        raise PrototxtError(f"{path}: not a solver state, or a damaged one") from None
    except OSError as error:
        raise WeightsError(f"{path}: {reason(error)}") from None


_ORIGIN = (SolverState.ITER_FIELD_NUMBER, SolverState.RUN_FIELD_NUMBER, SolverState.ORDER_FIELD_NUMBER)


def _decode_solver_state(
    content: bytes, path: str | os.PathLike[str], shapes: Sequence[hdf5.Shape] | None
) -> SolverState:
    if _looks_like_hdf5(content, path):
        return hdf5.decode_solver_state(content, path, shapes)
    if _is_solver_state(content):
        return SolverState.FromString(content)
    if _is_net(content):
        raise PrototxtError(f"{path}: {hdf5.WEIGHTS_FOR_STATE}")
    if content and is_text(content):
        raise PrototxtError(f"{path}: a text file where a solver state is expected; give a .solverstate")
    raise PrototxtError(f"{path}: not a solver state, or a damaged one ({len(content)} bytes)")


def _looks_like_hdf5(content: bytes, path: str | os.PathLike[str]) -> bool:
    return hdf5.is_hdf5(content) or os.fspath(path).endswith(".h5")


def _is_solver_state(content: bytes) -> bool:
    """Return whether a binary file is a SolverState, by its first field: an integer, unlike a net's."""
    try:
        return content[:1] == b"\x08" and SolverState.FromString(content).HasField("iter")
    except DecodeError:
        return False


def _is_net(content: bytes) -> bool:
    try:
        net = NetParameter.FromString(content)
    except DecodeError:
        return False
    return bool(net.layer or net.layers)


_MOST = 2**48  # samples; more than any run reads, and far below the overflow of sample numbers


def _check(state: SolverState, path: str | os.PathLike[str]) -> None:
    """Raise PrototxtError for a number that no run reaches, or a state that names no weights."""
    if not state.learned_net:
        raise PrototxtError(f"{path}: a damaged solver state: it names no weights")
    numbers = {"iter": state.iter, "current_step": state.current_step, "random_seed": state.random_seed}
    limits = dict.fromkeys(numbers, 2**63 - 1)
    for position in state.position:
        for field in ("samples", "records"):
            name = f"{field} of layer '{position.layer}' in the {position.net} net"
            numbers[name], limits[name] = getattr(position, field), _MOST
    for name, number in numbers.items():
        if not 0 <= number <= limits[name]:
            raise PrototxtError(f"{path}: a damaged solver state: {name}: {number}, expected 0 to {limits[name]}")
