"""Read TensorBoard's event files: records, their checksums by the definition of CRC-32C, and curves."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event, SessionLog


def crc32c(content: bytes) -> int:
    """Return the CRC of RFC 3720, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(content: bytes) -> int:
    """Return a TFRecord's checksum."""
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events(path: Path, checked: bool = False) -> list[Any]:
    """Return the events of a file, which must consist of whole records; with `checked` their checksums must hold."""
    content, found, at = path.read_bytes(), [], 0
    while at < len(content):
        length, crc = struct.unpack_from("<QI", content, at)
        record = content[at + 12 : at + 12 + length]
        (last,) = struct.unpack_from("<I", content, at + 12 + length)
        if checked:
            assert crc == masked(content[at : at + 8]) and last == masked(record)
        found.append(Event.FromString(record))
        at += 16 + length
    return found


def all_events(folder: Path) -> list[Any]:
    """Return the events of all files of a folder, in the order of their names."""
    return [event for path in sorted(folder.iterdir()) for event in events(path)]


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the points (step, value) of each curve, as TensorBoard shows them: a start removes what follows it."""
    found: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for event in all_events(folder):
        if event.session_log.status == SessionLog.START:
            for points in found.values():
                points[:] = [point for point in points if point[0] < event.step]
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                found[value.tag].append((event.step, value.simple_value))
    return dict(found)
