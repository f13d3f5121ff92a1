"""Measure a link of the emulated cluster in both directions at once.

Start `link.py serve` on one node, then `link.py HOST` on another, which prints the seconds per byte. It uses plain
sockets, so that the bound does not depend on an MPI library. `link.py HOST wait` prints "warm" first and waits for a
line, so that several pairs can begin at once: a pair that ends after the others has the link to itself. Numbers of
bytes may follow `serve`, and the same ones `wait`: an exchange of each, one after the other.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

PORT, WARM_UP, NBYTES = 7777, 4 << 20, 32 << 20
LEAST, MOST = 1 << 20, 50  # bytes that are exchanged by small messages, and how many of them


def exchange(connection: socket.socket, nbytes: int) -> float:
    """Send and receive `nbytes` bytes at the same time; return the seconds until both are complete."""
    start = time.perf_counter()
    sender = threading.Thread(target=connection.sendall, args=(bytes(nbytes),))
    sender.start()
    buffer, left = bytearray(1 << 18), nbytes
    while left and (got := connection.recv_into(buffer, min(left, len(buffer)))):
        left -= got
    sender.join()
    return time.perf_counter() - start


def both(connection: socket.socket, sizes: Sequence[int], begin: Callable[[], object]) -> Iterator[float]:
    """Yield the seconds per byte of exchanges over a warm connection, each after `begin`, and close it.

    Small messages are exchanged many times.
    """
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        exchange(connection, WARM_UP)
        for nbytes in sizes:
            begin()
            times = max(1, min(MOST, LEAST // nbytes))
            yield sum(exchange(connection, nbytes) for _ in range(times)) / (times * nbytes)


def serve(sizes: Sequence[int]) -> None:
    """Serve exchanges, each of which the client begins by a byte."""
    with socket.create_server(("", PORT)) as server:
        print("ready", flush=True)
        connection = server.accept()[0]
        list(both(connection, sizes, lambda: connection.recv(1)))


def measure(host: str, sizes: Sequence[int], wait: bool) -> None:
    """Connect to `host` and print the seconds per byte; with `wait` begin each after a line of input."""
    connection = socket.create_connection((host, PORT))

    def begin() -> None:
        if wait:
            print("warm", flush=True)
            sys.stdin.readline()
        connection.sendall(b"!")

    for seconds in both(connection, sizes, begin):
        print(seconds, flush=True)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[2:] if word.isdigit()] or [NBYTES]
    if sys.argv[1] == "serve":
        serve(given)
    else:
        measure(sys.argv[1], given, wait="wait" in sys.argv[2:])
