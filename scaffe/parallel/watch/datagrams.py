"""Datagrams: UDP datagrams that carry the ranks' records between nodes.

MPI itself may hang, and a frozen node answers no request. So each node sends its ranks' records at intervals, and no
rank waits for them. If a datagram is lost or filtered, a report knows less; nothing else changes.

A node sends one datagram to each of two ranks of each other node, which share what they receive with the ranks of their
node. So 1,250 nodes of 8 ranks send 3 million datagrams each quarter of the stall time; to each rank it would be 12
million. Two, since one may be frozen, and a datagram may be lost.
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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from collectives.group import Group, among, from_firsts
from scaffe.monitor.record import BEAT_WORD, SINCE_WORD, WORDS

if TYPE_CHECKING:
    from mpi4py import MPI

TOKEN_BYTES = 32  # the job's secret: datagrams of other jobs, and forged ones, are dropped
DIGEST = "sha256"
DIGEST_BYTES = 32
MOST_BYTES = 1 << 16  # of a datagram
LAST, PAUSE = 3, 0.05  # how often a record without a later one is sent, and the seconds between
RECEIVERS, TOLD = 2, 4  # ranks of a node to which a datagram goes, the first of so many that run
SIOCGIFADDR = 0x8915  # Linux: an interface's IPv4 address


class Peer:
    """Another node: its addresses, and the ports of its first ranks by rank."""

    def __init__(self, addresses: Sequence[str], ports: dict[int, int]):
        self.ports, self._addresses = ports, list(addresses)
        self._heard_from, self._heard = "", 0.0  # the address of the last datagram, and when it came

    def places(self, runs: Callable[[int], bool], patience: float) -> list[tuple[str, int]]:
        """Return where to send a datagram: to the address of the last one, if no older than `patience`, else to all."""
        recent = time.monotonic() - self._heard <= patience
        ranks = sorted(self.ports, key=lambda rank: not runs(rank))[:RECEIVERS]
        return [(one, self.ports[k]) for k in ranks for one in ([self._heard_from] if recent else self._addresses)]

    def hear(self, address: str) -> None:
        """Note that a datagram has come from an address."""
        self._heard_from, self._heard = address, time.monotonic()


class Datagrams:
    """Send the records of this node's ranks to all other nodes of `comm`, every `seconds`. Collective.

    `group` has the nodes of `comm`; on a single one no socket is opened. `fits(row)` returns whether a row can be a
    record of this job. `refused` counts the datagrams that were dropped: from another job, or without such a row. Each
    row has WORDS for each of as many `threads` on all ranks.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        group: Group,
        seconds: float,
        fits: Callable[[Sequence[int]], bool] = lambda row: True,
        threads: int = 1,
    ):
        self._length = threads * len(WORDS)
        self.seconds, self._fits, self._sent, self.refused = seconds, fits, 0.0, 0
        self._socket: socket.socket | None = None
        self._peers: list[Peer] = []
        self._peer_of: dict[int, Peer] = {}  # by rank
        token = np.frombuffer(os.urandom(TOKEN_BYTES), np.uint8).copy()
        comm.Bcast(token)
        self._token = token.tobytes()
        if len(group.firsts) == 1:
            return
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self._socket.setblocking(False)
        self._find_peers(comm, group, self._socket.getsockname()[1])

    def _find_peers(self, comm: MPI.Intracomm, group: Group, port: int) -> None:
        """Find out the addresses of the other nodes, and the ports of their first ranks. Collective."""
        mine, me = addresses(), group.nodes[comm.rank]
        node = among(comm, group.members(comm.rank))
        ports = node.allgather(port)[:TOLD]
        node.Free()
        every = from_firsts(comm, group, _packed(mine, ports))
        members: list[list[int]] = [[] for _ in every]
        for rank, number in enumerate(group.nodes):
            members[number].append(rank)
        for number, (told, ranks) in enumerate(zip(every, members, strict=True)):
            if number == me:
                continue
            there, ports = _unpacked(told)
            peer = Peer(
                [one for one in there if one not in mine] or ["127.0.0.1"], dict(zip(ranks, ports, strict=False))
            )
            self._peers.append(peer)
            self._peer_of.update(dict.fromkeys(ranks, peer))

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
        now = time.monotonic_ns()
        datagram = pack(self._token, rows, ranks, now)
        runs = lambda rank: rows[rank][BEAT_WORD] > now - 2e9 * self.seconds  # noqa: E731
        for place in [place for peer in self._peers for place in peer.places(runs, 4 * self.seconds)]:
            with contextlib.suppress(OSError):  # no route to this address: another one may have
                self._socket.sendto(datagram, place)

    def receive(self, rows: Sequence[memoryview]) -> None:
        """Store the records that have arrived from other nodes in `rows`, by rank."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):  # until no datagram is left
            while True:
                datagram, (address, _) = self._socket.recvfrom(MOST_BYTES)
                self._store(datagram, rows, address)

    def _store(self, datagram: bytes, rows: Sequence[memoryview], address: str) -> None:
        """Store the records that fit of a datagram that has come from an address."""
        try:
            received = unpack(self._token, datagram, time.monotonic_ns(), self._length)
        except ForeignError:
            received = []
        fitting = [(rank, row) for rank, row in received if rank in self._peer_of and self._fits(row)]
        self.refused += not fitting
        for rank, row in fitting:
            for word, value in enumerate(row):
                rows[rank][word] = value
            self._peer_of[rank].hear(address)

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


def _packed(addresses: Sequence[str], ports: Sequence[int]) -> bytes:
    """Return addresses and at most TOLD ports in few bytes."""
    return struct.pack(f"{TOLD}H", *ports, *[0] * (TOLD - len(ports))) + b"".join(map(socket.inet_aton, addresses))


def _unpacked(told: bytes) -> tuple[list[str], list[int]]:
    """Return the addresses and the ports that `_packed` has packed."""
    ports, there = struct.unpack(f"{TOLD}H", told[: 2 * TOLD]), told[2 * TOLD :]
    return [socket.inet_ntoa(there[k : k + 4]) for k in range(0, len(there), 4)], [port for port in ports if port]


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
