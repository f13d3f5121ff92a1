"""Conversion of arrays to and from BlobProto's wire format, without a Python operation per element.

The Python protobuf library copies repeated floats one by one, which takes minutes for the parameters of a large
net. Their wire format is a tag, a length and the floats as in memory (little-endian), so they are written and read
as bytes. Messages that hold blobs are joined from serialised parts, since protobuf parsers accept fields in any order.
"""

from __future__ import annotations

import numpy as np

from scaffe.proto import BlobProto, BlobShape, checksums

_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}  # bytes of a field, by wire type


def field(number: int, payload: bytes) -> bytes:
    """Return a serialised submessage, string or packed array as field `number` of a message."""
    return _head(number, len(payload)) + payload


def _head(number: int, length: int) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(length)


def encode(array: np.ndarray, diff: np.ndarray | None = None, more: bytes = b"") -> bytes:
    """Return a serialised BlobProto: the array's shape and values as float32, the gradient if given, then `more`."""
    parts = [field(BlobProto.DATA_FIELD_NUMBER, array.astype("<f4", copy=False).tobytes())]
    if diff is not None:
        parts.append(field(BlobProto.DIFF_FIELD_NUMBER, diff.astype("<f4", copy=False).tobytes()))
    shape = BlobShape(dim=array.shape).SerializeToString()
    return b"".join([*parts, field(BlobProto.SHAPE_FIELD_NUMBER, shape), more])


def encode_checked(array: np.ndarray, diff: np.ndarray | None = None) -> bytes:
    """Return a serialised BlobProto as `encode` does, with a checksum."""
    given = [array] if diff is None else [array, diff]
    checksum = checksums.of(array.shape, *(np.ascontiguousarray(values, "<f4") for values in given))
    return encode(array, diff, BlobProto(checksum=checksum).SerializeToString())


def sealed(parts: list[bytes], number: int) -> bytes:
    """Return the joined serialised parts of a message, followed by their checksum as string field `number`."""
    parts = [*parts, _head(number, checksums.LENGTH)]
    return b"".join([*parts, checksums.seal(parts)])


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


def _varint(number: int) -> bytes:
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
