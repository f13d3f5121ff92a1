"""Measure a link of the emulated cluster in both directions at once.

Start `link.py serve` on one node, then `link.py HOST` on another, which prints the seconds per byte. It uses plain
sockets, so that the bound does not depend on an MPI library. `link.py HOST wait` prints "warm" first and waits for a
line, so that several pairs can begin at once: a pair that ends after the others has the link to itself.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable

PORT, WARM_UP, NBYTES = 7777, 4 << 20, 32 << 20


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


def both(connection: socket.socket, begin: Callable[[], object]) -> float:
    """Return the seconds per byte of an exchange over a warm connection, after `begin`, and close it."""
    with connection:
        exchange(connection, WARM_UP)
        begin()
        return exchange(connection, NBYTES) / NBYTES


def serve() -> None:
    """Serve one exchange, which the client begins by a byte."""
    with socket.create_server(("", PORT)) as server:
        print("ready", flush=True)
        connection = server.accept()[0]
        both(connection, lambda: connection.recv(1))


def measure(host: str, wait: bool) -> None:
    """Connect to `host` and print the seconds per byte; with `wait` begin after a line of input."""
    connection = socket.create_connection((host, PORT))

    def begin() -> None:
        if wait:
            print("warm", flush=True)
            sys.stdin.readline()
        connection.sendall(b"!")

    print(both(connection, begin))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        measure(sys.argv[1], wait="wait" in sys.argv[2:])
