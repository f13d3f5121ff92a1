"""How host memory is sent, joined and divided."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collectives.execution.operations import OPERATIONS
from collectives.execution.transport import HostTransport, as_sent, message_type


@pytest.mark.parametrize(
    ("dtype", "named"),
    [
        ("f4", MPI.FLOAT), ("f8", MPI.DOUBLE), ("i1", MPI.INT8_T), ("i8", MPI.INT64_T), ("u2", MPI.UINT16_T),
        ("c8", MPI.C_FLOAT_COMPLEX), ("c16", MPI.C_DOUBLE_COMPLEX), ("g", MPI.LONG_DOUBLE),
        ("f2", MPI.INT16_T), ("?", MPI.UINT8_T), (">f4", MPI.BYTE), ("S3", MPI.BYTE),
    ],
)  # fmt: skip
def test_a_type_has_mpi_s_name_or_that_of_the_same_bits(dtype: str, named: MPI.Datatype) -> None:
    assert message_type(np.dtype(dtype)) == named


def test_elements_that_mpi_lacks_are_sent_as_others_of_the_same_bits() -> None:
    half, numbers = np.array([1.5, -2.0], np.float16), np.zeros(2, np.float32)
    assert as_sent(half).dtype == np.int16 and np.shares_memory(as_sent(half), half)
    assert as_sent(numbers) is numbers


def test_a_synchronous_send_is_mpi_s() -> None:
    calls: list[tuple[Any, ...]] = []
    comm: Any = SimpleNamespace(
        Isend=lambda *given: calls.append(("Isend", *given)),
        Issend=lambda *given: calls.append(("Issend", *given)),
        Irecv=lambda *given: calls.append(("Irecv", *given)),
    )
    host = HostTransport()
    message = host.message(np.zeros(3, np.float32), sent=True)
    host.send(comm, message, 1, 5, synchronous=False)
    host.send(comm, message, 1, 5, synchronous=True)
    host.receive(comm, message, 2, 6)
    assert message[1] == MPI.FLOAT
    assert calls == [("Isend", message, 1, 5), ("Issend", message, 1, 5), ("Irecv", message, 2, 6)]


def test_halves_are_joined_and_divided_in_float32() -> None:
    host, target = HostTransport(), np.zeros(1, np.float16)
    host.join(OPERATIONS["max"], target, np.array([2], np.float16), np.array([3], np.float16))
    assert target == 3
    host.copy(target, np.array([4], np.float16))
    host.join(OPERATIONS["sum"], target, target, np.array([1], np.float16))
    host.divide(target, 3)
    assert target == np.float16(np.float32(5) / 3)
    assert host.empty((2, 3), np.dtype("f8")).shape == (2, 3)
