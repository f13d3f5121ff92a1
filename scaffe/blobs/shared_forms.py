"""SharedForms: parameters in an engine's own form, made once for each version of their values.

A form serves all nets over the parameters' memory, and all passes until the values change. An update changes them in
place. So every write of training's own is noted here, and users' calls begin with `changed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Condition, Lock
from typing import Any
from weakref import WeakSet

import numpy as np

from scaffe.blobs.packed import aligned_zeros


class SharedForms:
    """The forms of the parameters that nets share. The contexts of these nets have the same object.

    The scheduler opens a block `with forms.keep()` around an iteration or a test pass. In the block each form is made
    once, by the threads that need it first, and serves all passes of all nets. Outside of it each net makes its own.

    A form's memory is first written, and so placed, by the threads that make it. Nets whose parameters lie in different
    memory, such as those of different NUMA domains, have different forms.

    With `private` they are those of one net, whose forms last outside of blocks too, until `expose` is called.
    """

    def __init__(self, private: bool = False) -> None:
        self.private = private
        self.version = 0  # the number of the block that is open; 0 outside
        self._versions = count(1)
        self.persistent = next(self._versions)  # the number of persistent blocks, until any parameter may have changed
        self._forms: WeakSet[SharedForm] = WeakSet()
        self._found: dict[tuple[int, int], list[SharedForm]] = {}  # by the first and last address of a write
        self._lock = Lock()

    @contextmanager
    def keep(self, persistent: bool = False) -> Iterator[None]:
        """Keep each form from its first use to the end of the block, which all nets' passes are in.

        No parameter changes between its first and its last use in the block. Training allows that: a parameter is
        received before its first layer's forward pass, and updated after all instances have given its gradient.
        Forms of a `persistent` block serve later ones too, until `changed` is called for their parameter.
        """
        self.version = self.persistent if persistent else next(self._versions)
        try:
            yield
        finally:
            self.version = 0

    def changed(self, values: np.ndarray | None = None) -> None:
        """Note that these parameters, a range of a flat array, were overwritten; without `values`, that any may be.

        Any thread can call it when no thread needs a form of theirs.
        """
        if values is None:
            self.persistent = next(self._versions)
            self.version = self.version and self.persistent
            return
        if self._forms:  # small nets have none
            for form in self._of(values):
                form.expire()

    def expose(self) -> None:
        """Note that parameters can be written without notice from now on."""
        self.private = False

    def _of(self, values: np.ndarray) -> list[SharedForm]:
        """Return the forms of parameters that have elements in a range."""
        start, stop = _address(values), _address(values) + values.nbytes
        found = self._found.get((start, stop))
        if found is None:
            with self._lock:
                found = [form for form in self._forms if form.lies_in(start, stop)]
                self._found[start, stop] = found
        return found

    def of(self, source: np.ndarray, layouts: Any, size: int, parts: int) -> SharedForm:
        """Return the form of a parameter, in `parts` parts and with memory for `size` float32 numbers.

        `source` is the parameter's array; `layouts` are the engine's descriptions of the array and of the form, and say
        by `==` which are the same. Any thread can call it. A form lives as long as a net refers to it.
        """
        with self._lock:
            for form in self._forms:
                if form.is_of(source, layouts):
                    return form
            form = SharedForm(source, layouts, size, parts)
            self._forms.add(form)
            self._found.clear()
            return form


class SharedForm:
    """A parameter in one layout: `array`, in parts that several threads can make at the same time."""

    def __init__(self, source: np.ndarray, layouts: Any, size: int, parts: int):
        self.source, self.layouts, self.parts = source, layouts, parts
        self.array = aligned_zeros(size)
        self._version = 0
        self._free: list[int] = []  # parts of this version that no thread has taken
        self._missing = 0  # parts of this version that are not made
        self._changed = Condition()

    def is_of(self, source: np.ndarray, layouts: Any) -> bool:
        """Return whether this is the form of the parameter in the memory of `source`, with these layouts."""
        return _address(source) == _address(self.source) and bool(layouts == self.layouts)

    def lies_in(self, start: int, stop: int) -> bool:
        """Return whether the parameter has elements between two addresses."""
        first = _address(self.source)
        return first < stop and start < first + self.source.nbytes

    def expire(self) -> None:
        """Note that the parameter has changed, so that all parts are made anew. No thread may be making them."""
        self._version = 0

    def complete(self, version: int, make: Callable[[int], object]) -> None:
        """Return once all parts are of this version: call `make(part)` for those that no other thread has taken.

        Where `make` raises an error, another thread makes that part.
        """
        while (part := self._take(version)) is not None:
            try:
                make(part)
            except BaseException:
                self._put_back(part)
                raise
            self._count()

    def _take(self, version: int) -> int | None:
        """Return a part to make; None once all are made."""
        with self._changed:
            if version != self._version:
                self._version, self._missing = version, self.parts
                self._free = list(range(self.parts))
            self._changed.wait_for(lambda: self._free or not self._missing)
            return self._free.pop() if self._free else None

    def _put_back(self, part: int) -> None:
        with self._changed:
            self._free.append(part)
            self._changed.notify()

    def _count(self) -> None:
        """Note that a part is made."""
        with self._changed:
            self._missing -= 1
            if not self._missing:
                self._changed.notify_all()


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
