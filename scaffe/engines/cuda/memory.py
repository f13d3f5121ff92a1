"""BlobMemory: a net's blobs in one allocation, planned anew when shapes have changed."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from scaffe.blob import Blob, Values
from scaffe.engine import NetView
from scaffe.engines.cuda.pool import UsageRecord, pack

Steps = tuple[int, int]  # the first and the last


class Lot(NamedTuple):
    """What is to be placed: a blob's values or gradients, whether they are typed, their bytes and when they are in use.

    Typed ones have the engine's form and data type; others are float32 in C order.
    """

    blob: Blob
    values: Values
    typed: bool
    span: UsageRecord


class Typed(Protocol):
    """The blobs that have a form of the engine's, and their data type."""

    dtype: Any

    def choose(self) -> set[int]:
        """Return the typed blobs, by id."""

    def move_in(self, blob: Blob, values: Values, memory: Any, shared: bool) -> None:
        """Make `memory` (bytes) the home of a typed blob's values or gradient."""


class BlobMemory:
    """Where the values and gradients lie that a net's layers compute.

    Layer i's forward pass is step i of a pass over n layers, its backward pass step 2 n - 1 - i. What the user or a
    data layer fills has memory of its own; what is read at the end of a pass is in use until then.
    """

    def __init__(self, xp: ModuleType, net: NetView, typed: Typed | None = None):
        self.xp, self.net, self.typed = xp, net, typed
        self.nbytes = 0
        self.version = 0  # changes whenever blobs are placed anew
        self._placed: dict[int, Values] = {}
        self._kept = (True, True)
        self.plans = self.stale = not any(layer.reshapes_always for layer in net.layers)

    def prepare(self) -> None:
        """Prepare a pass: take over what was written into parameters on the host; place all blobs if any changed."""
        for blob in (blob for layer in self.net.layers for blob in layer.blobs):
            blob.values.settle()
        for blob in self.net.blobs.values():  # what no layer has computed since the last pass, no layer will
            for values in (blob.values, blob.diff_values):
                if values.deferred:
                    values.overwritten()
        kept = self.net.keep_data, self.net.keep_diffs
        if self.plans and (self.stale or kept != self._kept):
            self.stale, self._kept = False, kept
            self.place()

    def place(self) -> None:
        """Place all lots in one new allocation. Values survive where blobs share no memory."""
        lots = self.lots()
        plan = pack([lot.span for lot in lots])
        memory = self.xp.zeros(max(plan.nbytes, 1), np.uint8)
        self.nbytes, self.version = plan.nbytes, self.version + 1
        self._placed = {id(lot.values): lot.values for lot in lots}
        for lot, offset in zip(lots, plan.offsets, strict=True):
            part, shared = memory[offset : offset + lot.span.nbytes], lot.span.last < self._whole[1]
            lot.values.move_out(lot.blob.shape, self.xp)
            if lot.typed and self.typed:
                self.typed.move_in(lot.blob, lot.values, part, shared)
            else:
                lot.values.lie(part.view(np.float32).reshape(lot.blob.shape), shared)

    def has(self, blob: Blob) -> bool:
        """Return whether a blob's values lie where they were placed."""
        return id(blob.values) in self._placed  # which keeps them, so that no others have that id

    def lots(self) -> list[Lot]:
        """Return the net's lots: in the test phase values alone, as few ask for gradients there."""
        net, trains, typed = self.net, self.net.trains, self.typed.choose() if self.typed else set()
        data = [self._lot(blob, blob.values, typed, steps, net.keep_data) for blob, steps in self._data(trains)]
        diffs = [self._lot(blob, blob.diff_values, typed, steps, net.keep_diffs) for blob, steps in self._diffs()]
        return data + diffs if trains else data

    def needs(self, rows: int, free: int, scratch: int) -> tuple[int, int]:
        """Return the bytes that each of `rows` samples needs, and the bytes for all: the `free` and the used ones.

        `scratch` are the bytes of the engine's scratch memory.
        """
        buffers = sum(layer.buffer_bytes for layer in self.net.layers) + scratch
        planned = pack([lot.span for lot in self.lots()]).nbytes
        return max(1, (planned + buffers) // rows), free + self.nbytes + buffers

    def _lot(self, blob: Blob, values: Values, typed: set[int], steps: Steps, kept: bool) -> Lot:
        dtype = self.typed.dtype if self.typed and id(blob) in typed else np.dtype(np.float32)
        span = UsageRecord(dtype.itemsize * blob.count, *(self._whole if kept else steps))
        return Lot(blob, values, id(blob) in typed, span)

    @property
    def _whole(self) -> Steps:
        return 0, 2 * len(self.net.layers) - 1

    def _data(self, trains: bool) -> list[tuple[Blob, Steps]]:
        """Return the blobs that layers compute, and when their values are in use: all the time in training."""
        net, last = self.net, self._whole[1]
        read = {id(net.tops[i][j]) for i, j, _ in net.losses} | {id(net.blobs[name]) for name in net.outputs}
        owners: dict[int, Blob] = {}  # of the memory of tops that are their bottom seen in another way
        found: dict[int, tuple[Blob, Steps]] = {}
        for i, layer in enumerate(net.layers):
            for top in net.tops[i]:
                if layer.views and top is not net.bottoms[i][0]:
                    owners[id(top)] = owners.get(id(net.bottoms[i][0]), net.bottoms[i][0])
                elif net.bottoms[i]:
                    found.setdefault(id(top), (top, (i, i)))
            for blob in (*net.bottoms[i], *net.tops[i]):
                owner = owners.get(id(blob), blob)
                if id(owner) in found:
                    ends = last if trains or id(blob) in read else i
                    first, before = found[id(owner)][1]
                    found[id(owner)] = owner, (0 if trains else first, max(before, ends))
        return [*found.values()]

    def _diffs(self) -> list[tuple[Blob, Steps]]:
        """Return the blobs whose gradients layers compute, and when these are in use."""
        net, last = self.net, self._whole[1]
        losses = {id(net.tops[i][j]) for i, j, _ in net.losses}  # which hold the weights
        found: dict[int, tuple[Blob, Steps]] = {}
        for i in reversed(range(len(net.layers))):
            node = net.nodes[i]
            if not node.backward:
                continue
            for blob, down in zip(net.bottoms[i], node.down, strict=True):
                if down and id(blob) not in losses:
                    found.setdefault(id(blob), (blob, (last - i, last - i)))
            for blob in net.tops[i]:
                if id(blob) in found:
                    found[id(blob)] = blob, (found[id(blob)][1][0], last - i)
        return [*found.values()]
