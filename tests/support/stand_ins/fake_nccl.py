"""A stand-in for `cupy.cuda.nccl` over the fake device: collectives that wait, on their stream, for the other ranks.

Ranks meet in a folder of shared memory, whose name is the unique id. Each collective must be the same on all ranks, as
its number in their order; else NCCL would wait forever, and this raises AssertionError. As other ranks may need what
this one's device has to do, the device goes on by itself, in a thread, however long this rank doesn't ask it.
"""

import os
import pickle
import shutil
import tempfile
import threading
from collections import Counter
from pathlib import Path

import numpy as np

SHM = "/dev/shm"  # noqa: S108
TYPES = ("FLOAT16", "FLOAT32", "FLOAT64", "INT32", "INT64", "UINT8")
UFUNCS = {"SUM": np.add, "MAX": np.maximum, "MIN": np.minimum}


class NcclError(RuntimeError):
    """What NCCL's refusals raise."""


class FakeNccl:
    """The module, for the arrays of one fake device."""

    NcclError = NcclError

    def __init__(self, device):
        self.device = device
        for number, name in enumerate((*TYPES, *UFUNCS)):
            setattr(self, f"NCCL_{name}", number)

    def get_version(self):
        return 22809

    def get_unique_id(self):
        return tempfile.mkdtemp(prefix="nccl-", dir=SHM).encode().ljust(128, b"\0")

    def groupStart(self):
        self.device.grouped = getattr(self.device, "grouped", 0) + 1

    def groupEnd(self):
        self.device.grouped -= 1
        assert self.device.grouped >= 0, "groupEnd without groupStart"

    def NcclCommunicator(self, size, identity, rank):
        assert type(identity) is bytes and len(identity) == 128
        return FakeGroup(self.device, size, Path(identity.rstrip(b"\0").decode()), rank)


class Arrived:
    """An event that has passed when all ranks' contributions to a collective are there."""

    def __init__(self, paths):
        self.paths = paths

    @property
    def passed(self):
        return all(path.exists() for path in self.paths)


class FakeGroup:
    """NCCL's communicator."""

    def __init__(self, device, size, folder, rank):
        self.device, self.size, self.folder, self.rank = device, size, folder, rank
        self.begun, self.pairs = 0, Counter()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._go_on, daemon=True)
        self.thread.start()

    def _go_on(self):
        while not self.ended.wait(1e-3) and self.device.failure is None:
            try:
                self.device.tick()
            except Exception as error:  # raised again where the rank asks next
                self.device.failure = error

    def allReduce(self, send, recv, count, kind, op, stream):
        self._put(("allreduce", count, kind, op), send, recv, count, kind, op, True, stream)

    def reduce(self, send, recv, count, kind, op, root, stream):
        self._put(("reduce", count, kind, op, root), send, recv, count, kind, op, self.rank == root, stream)

    def broadcast(self, send, recv, count, kind, root, stream):
        self._put(("bcast", count, kind, root), send, recv, count, kind, None, True, stream)

    def send(self, buffer, count, kind, peer, stream):
        path, nbytes = self._between("send", self.rank, peer), count * np.dtype(TYPES[kind].lower()).itemsize
        self._work(stream).append(
            (None, 0, lambda: self._write(path, ((count, kind), self.device._at(buffer, nbytes))))
        )

    def recv(self, buffer, count, kind, peer, stream):
        path, nbytes = self._between("recv", peer, self.rank), count * np.dtype(TYPES[kind].lower()).itemsize

        def take():
            call, values = pickle.loads(path.read_bytes())
            assert call == (count, kind), f"a send of {call} meets a receive of {(count, kind)}"
            self.device._at(buffer, nbytes)[:] = values

        self._work(stream).append((Arrived([path]), 1, take))

    def _between(self, end, source, target):
        """Return the file of the next message between two ranks, as one end counts them."""
        assert getattr(self.device, "grouped", 0), "send and recv outside a group wait for each other"
        self.pairs[end, source, target] += 1
        return self.folder / f"{source} to {target}, {self.pairs[end, source, target]}"

    def _work(self, stream):
        return next(one.work for one in self.device.streams if one.ptr == stream)

    def _write(self, path, what):
        part = path.with_suffix(".part")
        part.write_bytes(pickle.dumps(what))
        os.replace(part, path)

    def destroy(self):
        self.ended.set()
        self.thread.join()
        if self.rank == 0:
            shutil.rmtree(self.folder)

    def _put(self, call, send, recv, count, kind, op, gets, stream):
        """Put a collective on a stream: give the contribution, wait for the others', take the result."""
        dtype, self.begun = np.dtype(TYPES[kind].lower()), self.begun + 1
        paths = [self.folder / f"{self.begun} of {rank}" for rank in range(self.size)]
        work = self._work(stream)

        def give():
            self._write(paths[self.rank], (call, self.device._at(send, count * dtype.itemsize).view(dtype)))

        def take():
            calls, rows = zip(*(pickle.loads(path.read_bytes()) for path in paths), strict=True)
            assert set(calls) == {call}, f"ranks differ in their collective {self.begun}: {calls}"
            if gets:
                result = rows[call[-1]] if op is None else self._reduced(op, rows)
                self.device._at(recv, count * dtype.itemsize).view(dtype)[:] = result

        work.append((None, 0, give))
        work.append((Arrived(paths), 1, take))

    def _reduced(self, op, rows):
        return list(UFUNCS.values())[op - len(TYPES)].reduce(rows)
