"""Beacon: UDP datagrams that carry the ranks' records between nodes.

MPI itself may hang, and a frozen node answers no request. So each node sends its ranks' records at intervals, and no
rank waits for them. If a datagram is lost or filtered, a report knows less; nothing else changes.
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
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from scaffe.monitor.record import BEAT_WORD, SINCE_WORD, WORDS

if TYPE_CHECKING:
    from mpi4py import MPI

TOKEN_BYTES = 32  # the job's secret: datagrams of other jobs, and forged ones, are dropped
DIGEST = "sha256"
DIGEST_BYTES = 32
MOST_BYTES = 1 << 16  # of a datagram
LAST, PAUSE = 3, 0.05  # how often a record without a later one is sent, and the seconds between
SIOCGIFADDR = 0x8915  # Linux: an interface's IPv4 address


class Beacon:
    """Send the records of this node's ranks to all ranks of `comm` on other nodes, every `seconds`. Collective.

    `local` holds this node's ranks; if these are all ranks, no socket is opened. `fits(row)` returns whether a row can
    be a record of this job. `refused` counts the datagrams that were dropped: from another job, or without such a row.
    Each row has WORDS for each of as many `threads` on all ranks.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        local: Collection[int],
        seconds: float,
        fits: Callable[[Sequence[int]], bool] = lambda row: True,
        threads: int = 1,
    ):
        self._length = threads * len(WORDS)
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
        """Send the records `rows[rank]` of `ranks`, unless the last ones were sent less than `seconds` ago."""
        if time.monotonic() - self._sent >= self.seconds:
            self._send(rows, ranks)

    def send_last(self, rows: Sequence[Sequence[int]], ranks: Sequence[int]) -> None:
        """Send the records `rows[rank]` of `ranks` at once, a few times: none may follow, and one may be lost."""
        for _ in range(LAST if self._peers else 0):
            self._send(rows, ranks)
            time.sleep(PAUSE)

    def _send(self, rows: Sequence[Sequence[int]], ranks: Sequence[int]) -> None:
        if self._socket is None:
            return
        self._sent = time.monotonic()
        datagram = pack(self._token, rows, ranks, time.monotonic_ns())
        for peer in self._peers:
            with contextlib.suppress(OSError):  # no route to this address: another one may have
                self._socket.sendto(datagram, peer)

    def receive(self, rows: Sequence[memoryview]) -> Counter[int]:
        """Store the records that have arrived from other nodes in `rows`; return how many have, both by rank."""
        heard: Counter[int] = Counter()
        if self._socket is None:
            return heard
        with contextlib.suppress(OSError):  # until no datagram is left
            while True:
                heard.update(self._store(self._socket.recv(MOST_BYTES), rows))
        return heard

    def _store(self, datagram: bytes, rows: Sequence[memoryview]) -> list[int]:
        """Store a datagram's records that fit; return their ranks."""
        try:
            received = unpack(self._token, datagram, time.monotonic_ns(), self._length)
        except ForeignError:
            received = []
        fitting = [(rank, row) for rank, row in received if rank in self._foreign and self._fits(row)]
        self.refused += not fitting
        for rank, row in fitting:
            for word, value in enumerate(row):
                rows[rank][word] = value
        return [rank for rank, _ in fitting]

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()


class ForeignError(Exception):
    """A datagram that is not from this job, or was changed in transit."""


def pack(token: bytes, rows: Sequence[Sequence[int]], ranks: Sequence[int], now: int) -> bytes:
    """Return a datagram of the records of `ranks`, with ages in place of times, since nodes' clocks differ.

    `token` signs it; `now` is the time of this node's clock, ns.
    """
    numbers: list[int] = []
    for rank in ranks:
        row = list(rows[rank])
        for word in _times(row):
            row[word] = now - row[word]
        numbers += [rank, *row]
    body = array("q", numbers).tobytes()
    return hmac.digest(token, body, DIGEST) + body


def unpack(token: bytes, datagram: bytes, now: int, length: int = len(WORDS)) -> list[tuple[int, list[int]]]:
    """Return ranks and their records of `length` words, with times of this node's clock; `now` is its time, ns.

    Raise ForeignError unless the datagram is signed with `token` and holds whole records.
    """
    digest, body = datagram[:DIGEST_BYTES], datagram[DIGEST_BYTES:]
    numbers, one = array("q"), length + 1
    if not hmac.compare_digest(digest, hmac.digest(token, body, DIGEST)) or len(body) % (one * numbers.itemsize):
        raise ForeignError
    numbers.frombytes(body)
    return [(numbers[start], _arrived(numbers[start + 1 : start + one], now)) for start in range(0, len(numbers), one)]


def _arrived(row: Sequence[int], now: int) -> list[int]:
    """Return a record with times of this node's clock in place of ages."""
    row = list(row)
    for word in _times(row):
        row[word] = now - max(0, row[word])
    return row


def _times(row: Sequence[int]) -> list[int]:
    """Return which words of a record, which holds WORDS for each thread, are times."""
    return [k for k in range(len(row)) if k % len(WORDS) in (SINCE_WORD, BEAT_WORD)]


def addresses() -> list[str]:
    """Return this host's IPv4 addresses, except those of the loopback interface."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # the interface has no address
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return [address for address in found if not address.startswith("127.")]
