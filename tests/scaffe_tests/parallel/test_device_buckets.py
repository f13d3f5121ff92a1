"""The bytes of a bucket on devices: by a table's rows for their memory, else 25 MiB."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from collectives.tuning import Row, Shape, Table
from scaffe.parallel.maker import DEVICE_BUCKET, _device_bytes

TIMED = [Row("reduce", 4, 8, True, n, "chain", seconds=1e-4 + 1e-10 * n, memory="device") for n in (1 << 20, 1 << 26)]


@pytest.mark.parametrize(
    ("rows", "total", "expected"),
    [([], 240 << 20, DEVICE_BUCKET), ([], 1 << 20, 1 << 20), (TIMED, 240 << 20, 1 << 26)],
)
def test_buckets_on_devices(rows: list[Row], total: int, expected: int) -> None:
    comm: Any = SimpleNamespace(table=Table(rows, "a table"), shape=Shape(4, 8, "tcp"), size=32)
    net: Any = SimpleNamespace(packed=SimpleNamespace(nbytes=total))
    assert _device_bytes(comm, net, "device") == expected
    assert _device_bytes(comm, net, "device through host") == min(total, DEVICE_BUCKET)
