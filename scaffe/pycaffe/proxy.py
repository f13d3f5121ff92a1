"""A stand-in that mpirun starts for a process of a program: it hands over its place in the MPI job.

processes.py runs this file by its path, without the package: mpirun starts it as rank r of the job, and it gives the
environment that MPI reads to the program's process of solver rank r. It ends with that process: with exit code 0 after
the byte that says that MPI is finalised there, else with 1, so that mpirun ends the whole job.
"""

import json
import os
import socket
import struct
import sys
import time

PATIENCE = 60.0  # seconds until the program's process listens
PAUSE = 0.02  # seconds between attempts to connect
PARTS = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_", "HYDI_", "MPIR_", "MPI_", "MV2_", "I_MPI_")
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


def address(uid: str, rank: int) -> str:
    """Return the socket of a process, in Linux's abstract namespace: no file is left."""
    return f"\0scaffe-{uid}-{rank}"


def user(connection: socket.socket) -> int:
    """Return the number of the user at the other end."""
    number: int = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    return number


def connect(uid: str, rank: int) -> socket.socket:
    """Return a connection to this user's process of this rank. Raise OSError if it does not listen in time."""
    end = time.monotonic() + PATIENCE
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(address(uid, rank))
            if user(connection) != os.getuid():
                raise PermissionError("another user listens at the address of a process")
            return connection
        except OSError:
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE)


def main(uid: str) -> int:
    """Hand over this rank's environment, and the descriptor of MPICH's launcher; return the exit code."""
    rank = int(next(os.environ[name] for name in RANKS if name in os.environ))
    place = {name: value for name, value in os.environ.items() if name.startswith(PARTS)}
    text = json.dumps(place).encode()
    size = len(text).to_bytes(8, "big")
    with connect(uid, rank) as connection:
        if "PMI_FD" in place:
            socket.send_fds(connection, [size], [int(place["PMI_FD"])])
        else:
            connection.sendall(size)
        connection.sendall(text)
        return 0 if connection.recv(1) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
