"""Beacon: datagrams that carry the ranks' records from node to node.

MPI may be what hangs, and a frozen node answers nothing, so each node sends what it knows now and then, unasked, and
nobody waits. A datagram that is lost or filtered costs knowledge in a report, nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import socket
import struct
import time
from array import array
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from scaffe.monitor.record import BEAT_WORD, SINCE_WORD, WORDS

if TYPE_CHECKING:
    from mpi4py import MPI

TOKEN_BYTES = 32  # a job's own secret: no other job's datagrams are taken, nor forged ones
DIGEST = "sha256"
DIGEST_BYTES = 32
MOST_BYTES = 1 << 16  # of a datagram
SIOCGIFADDR = 0x8915  # Linux: an interface's IPv4 address


class Beacon:
    """Send the records of this node's ranks to all ranks of `comm` on other nodes, every `seconds`. Collective.

    `local` are this node's ranks; without others nothing is opened. `fits(row)` says whether there can be such a
    record. `refused` counts what came and was not this job's, or did not fit.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        local: Collection[int],
        seconds: float,
        fits: Callable[[Sequence[int]], bool] = lambda row: True,
    ):
        self.seconds, self._fits, self._sent, self.refused = seconds, fits, 0.0, 0
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
                self._take(self._socket.recv(MOST_BYTES), rows)

    def _take(self, datagram: bytes, rows: Sequence[memoryview]) -> None:
        try:
            received = unpack(self._token, datagram, time.monotonic_ns())
        except ForeignError:
            received = []
        fitting = [(rank, row) for rank, row in received if rank in self._foreign and self._fits(row)]
        self.refused += not fitting
        for rank, row in fitting:
            for word, value in enumerate(row):
                rows[rank][word] = value

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()


class ForeignError(Exception):
    """A datagram that is not this job's, or was changed on its way."""


def pack(token: bytes, rows: Sequence[Sequence[int]], ranks: Sequence[int], now: int) -> bytes:
    """Return a datagram of some ranks' records, whose times become ages: nodes' clocks differ."""
    numbers: list[int] = []
    for rank in ranks:
        row = list(rows[rank])
        for word in (SINCE_WORD, BEAT_WORD):
            row[word] = now - row[word]
        numbers += [rank, *row]
    body = array("q", numbers).tobytes()
    return hmac.digest(token, body, DIGEST) + body


def unpack(token: bytes, datagram: bytes, now: int) -> list[tuple[int, list[int]]]:
    """Return ranks and their records, with times of this node's clock.

    Raise ForeignError unless the datagram bears the token's digest and holds whole records.
    """
    digest, body = datagram[:DIGEST_BYTES], datagram[DIGEST_BYTES:]
    numbers, one = array("q"), len(WORDS) + 1
    if not hmac.compare_digest(digest, hmac.digest(token, body, DIGEST)) or len(body) % (one * numbers.itemsize):
        raise ForeignError
    numbers.frombytes(body)
    return [(numbers[start], _arrived(numbers[start + 1 : start + one], now)) for start in range(0, len(numbers), one)]


def _arrived(row: Sequence[int], now: int) -> list[int]:
    """Return a record whose ages have become times again."""
    row = list(row)
    for word in (SINCE_WORD, BEAT_WORD):
        row[word] = now - max(0, row[word])
    return row


def addresses() -> list[str]:
    """Return this host's IPv4 addresses, without the loopback's."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return [address for address in found if not address.startswith("127.")]
