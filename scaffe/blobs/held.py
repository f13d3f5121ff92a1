"""Held arrays: arrays of blobs' `data` and `diff` that users keep. They show the values after each public call.

Between two calls a blob's values are in its plain array, unless an engine holds them in its own form, or they moved to
other memory. A public call of a net or solver therefore does two things:

- at its start it takes over what was written into held arrays that are no longer the blobs' memory;
- at its end it updates every held array with its blob's values.

Only arrays that a user still references are tracked, so that a call costs nothing without them. An array whose size
differs from its blob's present size is not updated.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

P = ParamSpec("P")
Result = TypeVar("Result")


class Lender(Protocol):
    """A blob, as far as its arrays can be held: it also has each part, "array" or "diff_array", as an attribute."""

    @property
    def count(self) -> int:
        """The number of elements of each part."""

    def own(self, part: str) -> np.ndarray:
        """Return a part, in plain memory that it keeps."""


class HeldArray:
    """One array that a user holds: a view of `memory`, which was the blob's `part`, "array" or "diff_array".

    `shown` is a copy of its last values if the blob's values have moved to other memory, else None.
    """

    def __init__(self, blob: Lender, part: str, memory: np.ndarray):
        self.blob, self.part, self.memory = blob, part, memory
        self.shown: np.ndarray | None = None
        self.array: weakref.ref[np.ndarray] | None = None

    def absorb(self) -> None:
        """Copy the elements that the user changed to the blob."""
        if self.shown is None or self.memory.size != self.blob.count:
            return
        written = _bits(self.memory) != _bits(self.shown)
        if written.any():
            values = getattr(self.blob, self.part)
            np.copyto(values, self.memory.reshape(values.shape), where=written.reshape(values.shape))
            self.shown[...] = self.memory

    def show(self) -> None:
        """Update the array with the blob's values, which are in its plain array from now on."""
        if self.memory.size != self.blob.count:
            return
        values = getattr(self.blob, self.part)
        if _address(values) == _address(self.memory):
            self.shown = None
        else:
            self.memory[...] = values.reshape(self.memory.shape)
            self.shown = self.memory.copy()


class Held:
    """The held arrays of one net's blobs. As a context manager it spans a public call of the net."""

    def __init__(self) -> None:
        self._loans: set[HeldArray] = set()
        self.depth = 0  # how many public calls span the present moment

    def hand_out(self, blob: Lender, part: str) -> np.ndarray:
        """Return the blob's plain `part` for a user, who may keep it: the same array while the user references it."""
        loans = self._of(blob, part)
        if not self.depth:
            for loan in loans:
                loan.absorb()
        memory = blob.own(part)
        for loan in loans:
            kept = loan.array() if loan.array is not None else None
            if kept is not None and _address(memory) == _address(kept) and memory.shape == kept.shape:
                return kept
        return self._add(HeldArray(blob, part, memory))

    def _add(self, loan: HeldArray) -> np.ndarray:
        # A view references its base's base. Over a memoryview there is none, so views keep this array alive.
        array = np.asarray(memoryview(loan.memory))  # type: ignore[arg-type]
        loan.array = weakref.ref(array, lambda _: self._end(loan))
        self._loans.add(loan)
        return array

    def _end(self, loan: HeldArray) -> None:
        """Take over what was written into an array that is no longer referenced."""
        self._loans.discard(loan)
        if not self.depth:
            loan.absorb()

    def holds(self, blob: Lender, part: str) -> bool:
        """Return whether a user holds an array of that part of the blob."""
        return bool(self._loans) and bool(self._of(blob, part))

    def holds_any(self, blobs: Iterable[Lender], part: str) -> bool:
        """Return whether a user holds an array of that part of one of the blobs."""
        return bool(self._loans) and any(self.holds(blob, part) for blob in blobs)

    def _of(self, blob: Lender, part: str) -> list[HeldArray]:
        return [loan for loan in self._all() if loan.blob is blob and loan.part == part] if self._loans else []

    def _all(self) -> list[HeldArray]:
        """Return a copy of the set, since another thread of the user may add or remove arrays."""
        return list(self._loans)

    def lie_in(self, memory: np.ndarray) -> bool:
        """Return whether a user holds an array in this memory."""
        return any(np.may_share_memory(loan.memory, memory) for loan in self._all())

    def forget(self, blob: Lender, part: str) -> None:
        """Stop tracking the arrays of that part of the blob."""
        self._loans.difference_update(self._of(blob, part))

    def absorb(self, blobs: Iterable[Lender] | None = None) -> None:
        """Take over what was written into the arrays of these blobs, or of all."""
        for loan in self._chosen(blobs):
            loan.absorb()

    def show(self, blobs: Iterable[Lender] | None = None) -> None:
        """Update the arrays of these blobs, or of all, with the blobs' values."""
        for loan in self._chosen(blobs):
            loan.show()

    def _chosen(self, blobs: Iterable[Lender] | None) -> list[HeldArray]:
        if not self._loans or blobs is None:
            return self._all()
        chosen = {id(blob) for blob in blobs}
        return [loan for loan in self._all() if id(loan.blob) in chosen]

    def __enter__(self) -> None:
        if self._loans and not self.depth:
            self.absorb()
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        if self._loans and not self.depth:
            self.show()


class Together:
    """A public call that spans several nets, as a context manager."""

    depth = 0  # it serves one call, within which there is none of its own

    def __init__(self, all_held: Iterable[Held]):
        self._all = list(all_held)

    def __enter__(self) -> None:
        for held in self._all:
            held.__enter__()

    def __exit__(self, *error: object) -> None:
        for held in self._all:
            held.__exit__(*error)


class Holder(Protocol):
    """An object with public calls: a net or a solver."""

    @property
    def held(self) -> Any:
        """The context manager of a public call."""


Owner = TypeVar("Owner", bound=Holder)


def public(
    method: Callable[Concatenate[Owner, P], Result],
) -> Callable[Concatenate[Owner, P], Result]:
    """Make a method a public call, which reads held arrays at its start and updates them at its end.

    Within another one of the same net neither is due.
    """

    def call(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        held = self.held
        if held.depth:
            return method(self, *args, **kwargs)
        with held:
            return method(self, *args, **kwargs)

    update_wrapper(call, method)
    return call


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _bits(array: np.ndarray) -> np.ndarray:
    """Return an array's elements as unsigned integers, to compare their bits."""
    return array.view(f"u{array.itemsize}")
