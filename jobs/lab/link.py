"""Measure a link of the emulated cluster in both directions at once.

Start `link.py serve` on one node, then `link.py HOST` on another, which prints the seconds per byte. It uses plain
sockets, so that the bound does not depend on an MPI library.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

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


def both(connection: socket.socket) -> float:
    """Return the seconds per byte of an exchange over a warm connection, and close it."""
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        exchange(connection, WARM_UP)
        return exchange(connection, NBYTES) / NBYTES


def serve() -> None:
    """Serve one exchange."""
    with socket.create_server(("", PORT)) as server:
        print("ready", flush=True)
        both(server.accept()[0])


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        print(both(socket.create_connection((sys.argv[1], PORT))))
