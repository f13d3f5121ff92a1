"""MPI objects for the thread alone that made them: a use by another fails there, and is kept in `strangers`."""

from __future__ import annotations

import threading

from mpi4py import MPI

MAIN = threading.get_ident()
strangers: list[str] = []


def check(name: str) -> None:
    if threading.get_ident() != MAIN:
        strangers.append(f"{name} by thread {threading.current_thread().name}")
        raise AssertionError(f"MPI is for the main thread: {strangers[-1]}")


def guarded(value):
    """Return an MPI object that MPI gave as one that is guarded too, anything else as it is."""
    for kind, guard in GUARDS.items():
        if type(value) is kind:
            return guard(value)
    return value


class Guard:
    def __getattribute__(self, name: str):
        if name.startswith("_"):
            return super().__getattribute__(name)
        check(name)
        value = super().__getattribute__(name)
        if not callable(value):
            return value

        def call(*args, **kwargs):
            check(name)
            return guarded(value(*args, **kwargs))

        return call


class GuardedComm(Guard, MPI.Intracomm):
    """A communicator; so are those that are made from it."""


class GuardedRequest(Guard, MPI.Request):
    """A request."""


class GuardedWin(Guard, MPI.Win):
    """A window."""


GUARDS = {MPI.Intracomm: GuardedComm, MPI.Request: GuardedRequest, MPI.Win: GuardedWin}
