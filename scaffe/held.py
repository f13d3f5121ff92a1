"""Held arrays: what users keep of blobs' `data` and `diff` shows the blobs' values after each public call.

Between two calls a blob's values lie in its plain array, unless an engine has them in a form of its own, or they were
given other memory. A public call of a net or solver therefore begins by taking over what was written into arrays that
are no longer the blobs' own memory, and ends by letting every array show its blob's values. Only arrays that somebody
still refers to count, so that a call costs nothing where there are none. Arrays of another size than their blob now has
are left as they are.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from scaffe.blob import Blob

P = ParamSpec("P")
Result = TypeVar("Result")


class HeldArray:
    """One array in a user's hands: a view of `memory`, which was the blob's `part`, "array" or "diff_array".

    `shown` is a copy of what it last showed, where the blob's values have gone to other memory, else None.
    """

    def __init__(self, blob: Blob, part: str, memory: np.ndarray):
        self.blob, self.part, self.memory = blob, part, memory
        self.shown: np.ndarray | None = None
        self.array: weakref.ref[np.ndarray] | None = None

    def absorb(self) -> None:
        """Let what was written into the array count."""
        if self.shown is None or self.memory.size != self.blob.count:
            return
        written = _bits(self.memory) != _bits(self.shown)
        if written.any():
            values = getattr(self.blob, self.part)
            np.copyto(values, self.memory.reshape(values.shape), where=written.reshape(values.shape))
            self.shown[...] = self.memory

    def show(self) -> None:
        """Let the array show the blob's values, which stand in its plain array from now on."""
        if self.memory.size != self.blob.count:
            return
        values = getattr(self.blob, self.part)
        if _address(values) == _address(self.memory):
            self.shown = None
        else:
            self.memory[...] = values.reshape(self.memory.shape)
            self.shown = self.memory.copy()


class Held:
    """The arrays of one net's blobs that are in users' hands; as a context, a public call of the net."""

    def __init__(self) -> None:
        self._loans: set[HeldArray] = set()
        self._depth = 0

    def hand_out(self, blob: Blob, part: str) -> np.ndarray:
        """Return the blob's plain `part` for a user, who may keep it: the same array as long as he has it."""
        loans = self._of(blob, part)
        if not self._depth:
            for loan in loans:
                loan.absorb()
        memory = blob.own(part)
        for loan in loans:
            kept = loan.array() if loan.array is not None else None
            if kept is not None and _address(memory) == _address(kept) and memory.shape == kept.shape:
                return kept
        return self._add(HeldArray(blob, part, memory))

    def _add(self, loan: HeldArray) -> np.ndarray:
        # Views of an array refer to the array behind it, unless that is none: over a memoryview they keep this one.
        array = np.asarray(memoryview(loan.memory))  # type: ignore[arg-type]
        loan.array = weakref.ref(array, lambda _: self._end(loan))
        self._loans.add(loan)
        return array

    def _end(self, loan: HeldArray) -> None:
        """Take what was written into an array that nobody has any more."""
        self._loans.discard(loan)
        if not self._depth:
            loan.absorb()

    def holds(self, blob: Blob, part: str) -> bool:
        """Say whether somebody has an array of that part of the blob."""
        return bool(self._loans) and bool(self._of(blob, part))

    def _of(self, blob: Blob, part: str) -> list[HeldArray]:
        return [loan for loan in self._all() if loan.blob is blob and loan.part == part] if self._loans else []

    def _all(self) -> list[HeldArray]:
        """Return all loans; another thread of the user's may add some, or give some up, meanwhile."""
        return list(self._loans)

    def lie_in(self, memory: np.ndarray) -> bool:
        """Say whether somebody has an array over this memory."""
        return any(np.may_share_memory(loan.memory, memory) for loan in self._all())

    def forget(self, blob: Blob, part: str) -> None:
        """Leave arrays to whoever else has their memory."""
        self._loans.difference_update(self._of(blob, part))

    def absorb(self, blobs: Iterable[Blob] | None = None) -> None:
        """Let what was written into arrays, of these blobs or of all, count."""
        for loan in self._chosen(blobs):
            loan.absorb()

    def show(self, blobs: Iterable[Blob] | None = None) -> None:
        """Let arrays, of these blobs or of all, show the values."""
        for loan in self._chosen(blobs):
            loan.show()

    def _chosen(self, blobs: Iterable[Blob] | None) -> list[HeldArray]:
        if not self._loans or blobs is None:
            return self._all()
        chosen = {id(blob) for blob in blobs}
        return [loan for loan in self._all() if id(loan.blob) in chosen]

    def __enter__(self) -> None:
        if self._loans and not self._depth:
            self.absorb()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._loans and not self._depth:
            self.show()


class Together:
    """Public calls of several nets as one."""

    def __init__(self, all_held: Iterable[Held]):
        self._all = list(all_held)

    def __enter__(self) -> None:
        for held in self._all:
            held.__enter__()

    def __exit__(self, *error: object) -> None:
        for held in self._all:
            held.__exit__(*error)


class Holder(Protocol):
    """What has public calls: a net or a solver."""

    @property
    def held(self) -> Any: ...


Owner = TypeVar("Owner", bound=Holder)


def public(
    method: Callable[Concatenate[Owner, P], Result],
) -> Callable[Concatenate[Owner, P], Result]:
    """Let a method be a public call: arrays in users' hands count when it begins, and show the values when it ends."""

    def call(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        with self.held:
            return method(self, *args, **kwargs)

    update_wrapper(call, method)
    return call


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _bits(array: np.ndarray) -> np.ndarray:
    """Return an array's elements as whole numbers, which differ where the bits do."""
    return array.view(f"u{array.itemsize}")
