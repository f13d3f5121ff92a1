"""Beacon: datagrams that carry the ranks' records from node to node.

MPI may be what hangs, and a frozen node answers nothing, so each node sends what it knows now and then, unasked, and
nobody waits. A datagram that is lost or filtered costs knowledge in a report, nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from scaffe.monitor.record import BEAT, FIELDS, SINCE

if TYPE_CHECKING:
    from mpi4py import MPI

TOKEN_BYTES = 16  # a job's own, so that it takes no other's datagrams
SIOCGIFADDR = 0x8915  # Linux: an interface's IPv4 address


class Beacon:
    """Send the records of this node's ranks to all ranks of `comm` on other nodes, every `seconds`. Collective.

    `local` are this node's ranks; without others nothing is opened.
    """

    def __init__(self, comm: MPI.Intracomm, local: Collection[int], seconds: float):
        self.seconds, self._sent = seconds, 0.0
        self._socket: socket.socket | None = None
        self._peers: list[tuple[str, int]] = []
        self._foreign = {rank for rank in range(comm.size) if rank not in local}
        self._token = comm.bcast(os.urandom(TOKEN_BYTES))
        port = 0
        if self._foreign:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.bind(("", 0))
            self._socket.setblocking(False)
            port = self._socket.getsockname()[1]
        everywhere = comm.allgather((addresses(), port))
        mine = everywhere[comm.rank][0]
        for rank in self._foreign:
            there, port = everywhere[rank]
            self._peers += [(one, port) for one in there if one not in mine] or [("127.0.0.1", port)]

    def send(self, rows: Sequence[Sequence[int]], ranks: Sequence[int]) -> None:
        """Send the records of some ranks, unless that was done a short while ago."""
        now = time.monotonic()
        if self._socket is None or now - self._sent < self.seconds:
            return
        self._sent = now
        datagram = pack(self._token, rows, ranks, time.monotonic_ns())
        for peer in self._peers:
            with contextlib.suppress(OSError):  # no way there: others may have one
                self._socket.sendto(datagram, peer)

    def receive(self, rows: Sequence[memoryview]) -> None:
        """Put what has come from other nodes into `rows`."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):  # until nothing is left
            while True:
                for rank, row in unpack(self._token, self._socket.recv(1 << 16), time.monotonic_ns()):
                    if rank in self._foreign:
                        rows[rank][:] = row

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()


def pack(token: bytes, rows: Sequence[Sequence[int]], ranks: Sequence[int], now: int) -> bytes:
    """Return a datagram of some ranks' records, whose times become ages: nodes' clocks differ."""
    numbers: list[int] = []
    for rank in ranks:
        row = list(rows[rank])
        for field in (SINCE, BEAT):
            row[field] = now - row[field]
        numbers += [rank, *row]
    return token + array("q", numbers).tobytes()


def unpack(token: bytes, datagram: bytes, now: int) -> Iterator[tuple[int, array[int]]]:
    """Yield ranks and their records, with times of this node's clock; nothing from what is not this job's datagram."""
    numbers = array("q")
    one = len(FIELDS) + 1
    body = datagram[TOKEN_BYTES:]
    if datagram[:TOKEN_BYTES] != token or len(body) % (one * numbers.itemsize):
        return
    numbers.frombytes(body)
    for start in range(0, len(numbers), one):
        row = numbers[start + 1 : start + one]
        for field in (SINCE, BEAT):
            row[field] = now - row[field]
        yield numbers[start], row


def addresses() -> list[str]:
    """Return this host's IPv4 addresses, without the loopback's."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return [address for address in found if not address.startswith("127.")]
