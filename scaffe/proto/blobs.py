"""Conversion of arrays to and from BlobProto's wire format, without a Python operation per element.

The Python protobuf library copies repeated floats one by one, which takes minutes for the parameters of a large
net. Their wire format is a tag, a length and the floats as in memory (little-endian), so they are written and read
as bytes. Messages that hold blobs consist of serialised parts, since protobuf parsers accept fields in any order. Parts
with values are views of the arrays, so that a file is written without a copy of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import IO

import numpy as np

from readers.files import Part
from scaffe.proto import BlobProto, BlobShape, checksums

MOST_FIELDS = 100_000  # of a message that `read_fields` reads, which has one for each blob
_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}  # bytes of a field, by wire type


def field(number: int, payload: bytes) -> bytes:
    """Return a serialised submessage, string or packed array as field `number` of a message."""
    return _head(number, len(payload)) + payload


def nested(number: int, parts: Sequence[Part]) -> list[Part]:
    """Return the parts of a serialised submessage as field `number` of a message."""
    return [_head(number, sum(map(len, parts))), *parts]


def _head(number: int, length: int) -> bytes:
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(length)


def encode(array: np.ndarray, diff: np.ndarray | None = None) -> bytes:
    """Return a serialised BlobProto: the array's shape and values as float32, and the gradient if given."""
    return b"".join(_parts(array.shape, [array] if diff is None else [array, diff]))


def encode_checked(array: np.ndarray, diff: np.ndarray | None = None) -> list[Part]:
    """Return the parts of a serialised BlobProto as `encode` does, with a checksum."""
    given = [np.ascontiguousarray(values, "<f4") for values in ([array] if diff is None else [array, diff])]
    checksum = checksums.of(array.shape, *given)
    return [*_parts(array.shape, given), BlobProto(checksum=checksum).SerializeToString()]


def _parts(shape: Sequence[int], given: Sequence[np.ndarray]) -> list[Part]:
    parts: list[Part] = []
    for number, values in zip((BlobProto.DATA_FIELD_NUMBER, BlobProto.DIFF_FIELD_NUMBER), given, strict=False):
        flat = np.ascontiguousarray(values, "<f4").reshape(-1)
        parts += nested(number, [flat.view(np.uint8).data])
    return [*parts, field(BlobProto.SHAPE_FIELD_NUMBER, BlobShape(dim=shape).SerializeToString())]


def sealed(parts: Sequence[Part], number: int) -> list[Part]:
    """Return the serialised parts of a message, followed by their checksum as string field `number`."""
    parts = [*parts, _head(number, checksums.LENGTH)]
    return [*parts, checksums.seal(parts)]


def is_damaged(blob: BlobProto) -> bool:
    """Return whether a blob has a checksum that does not match its shape and values."""
    content = blob.SerializeToString()
    values = [_payload(content, number) for number in (BlobProto.DATA_FIELD_NUMBER, BlobProto.DIFF_FIELD_NUMBER)]
    return blob.HasField("checksum") and blob.checksum != checksums.of(blob.shape.dim, *values)


def values(blob: BlobProto) -> np.ndarray:
    """Return a blob's values, flat and float32, also if they are stored as double."""
    content = blob.SerializeToString()
    if blob.double_data:
        return np.frombuffer(_payload(content, BlobProto.DOUBLE_DATA_FIELD_NUMBER), "<f8").astype(np.float32)
    return np.frombuffer(_payload(content, BlobProto.DATA_FIELD_NUMBER), "<f4")


def _payload(content: bytes, number: int) -> memoryview:
    """Return the payload of length-delimited field `number` of a serialised blob, empty if there is none."""
    at = 0
    while at < len(content):
        tag, at = _read_varint(content, at)
        if tag & 7 in _FIXED:
            at += _FIXED[tag & 7]
            continue
        size, at = _read_varint(content, at)  # the value itself, for wire type varint
        if tag & 7 == _LENGTH_DELIMITED:
            if tag >> 3 == number:
                return memoryview(content)[at : at + size]
            at += size
    return memoryview(b"")


def split(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the fields of a serialised message without groups: number, the whole field, and its payload, if any."""
    at = 0
    while at < len(content):
        start = at
        tag, at = _read_varint(content, at)
        if tag & 7 in _FIXED:
            size = _FIXED[tag & 7]
        else:
            size, at = _read_varint(content, at)  # the value itself, for wire type varint
            size *= tag & 7 == _LENGTH_DELIMITED
        yield tag >> 3, content[start : at + size], content[at : at + size]
        at += size


def read_fields(file: IO[bytes], numbers: Collection[int]) -> bytes:
    """Return the first field of each of these numbers in an open serialised message, without reading the others.

    Stop once all are found. Raise EOFError where the file ends within a field, or is no message.
    """
    left, kept, start = set(numbers), bytearray(), file.tell()
    for number, _ in fields(file):
        behind = file.tell()
        if number in left:
            left.remove(number)
            file.seek(start)
            kept += file.read(behind - start)
        start = behind
        if not left:
            break
    return bytes(kept)


def fields(file: IO[bytes]) -> Iterator[tuple[int, bool]]:
    """Yield the number of each field of an open serialised message, and whether it has a length.

    The file's position is behind the field then; its values are not read. Raise EOFError as `read_fields` does.
    """
    end = os.fstat(file.fileno()).st_size
    for _ in range(MOST_FIELDS):
        if file.tell() == end:
            return
        tag = _varint_of(file)
        kind = tag & 7
        size = _FIXED.get(kind, 0) if kind != _LENGTH_DELIMITED else _varint_of(file)
        if kind == _VARINT:
            _varint_of(file)
        behind = file.tell() + size
        if kind not in (_VARINT, _LENGTH_DELIMITED, *_FIXED) or not tag >> 3 or behind > end:
            break
        file.seek(behind)
        yield tag >> 3, kind == _LENGTH_DELIMITED
    raise EOFError("no whole message")


def _varint_of(file: IO[bytes]) -> int:
    number = 0
    for shift in range(0, 70, 7):
        if not (byte := file.read(1)):
            break
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return number
    raise EOFError("no whole message")


def varint(number: int) -> bytes:
    """Return a number as a varint: groups of seven bits, the lowest first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """Return the varint at offset `at`, and the offset after it."""
    number = shift = 0
    while True:
        number |= (content[at] & 0x7F) << shift
        at += 1
        if content[at - 1] < 0x80:
            return number, at
        shift += 7
