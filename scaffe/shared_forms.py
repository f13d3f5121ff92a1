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

from scaffe.packed import aligned_zeros


class SharedForms:
    """The forms of the parameters that nets share. The contexts of these nets have the same object.

    The scheduler opens a block `with forms.keep()` around an iteration or a test pass. In the block each form is made
    once, by the threads that need it first, and serves all passes of all nets. Outside of it each net makes its own.

    A form's memory is first written, and so placed, by the threads that make it. Nets whose parameters lie in different
    memory, such as those of different NUMA domains, have different forms.
    """

    def __init__(self) -> None:
        self.version = 0  # the number of the block that is open; 0 outside
        self._versions = count(1)
        self._lasting = next(self._versions)
        self._forms: WeakSet[SharedForm] = WeakSet()
        self._found: dict[tuple[int, int], list[tuple[SharedForm, int]]] = {}  # by address and size of a write
        self._lock = Lock()

    @contextmanager
    def keep(self, lasting: bool = False) -> Iterator[None]:
        """Keep each form from its first use to the end of the block, which all nets' passes are in.

        No parameter changes between its first and its last use in the block. Training allows that: a parameter is
        received before its first layer's forward pass, and updated after all instances have given its gradient.
        Forms of a `lasting` block serve later ones too, until `changed` or `updated` is called for their parameter.
        """
        self.version = self._lasting if lasting else next(self._versions)
        try:
            yield
        finally:
            self.version = 0

    def changed(self, values: np.ndarray | None = None) -> None:
        """Note that these parameters, a range of a flat array, were overwritten; without `values`, that any may be.

        Any thread can call it when no thread needs a form of theirs.
        """
        if values is None:
            self._lasting = next(self._versions)
            self.version = self.version and self._lasting
            return
        for form, _ in self._of(values):
            form.expire()

    def updated(self, values: np.ndarray) -> None:
        """Note that an update has written these parameters, a range of a flat array: while they are in the cache.

        Forms that can follow are brought up to date here, others when they are needed. Several threads can call it for
        different ranges.
        """
        for form, start in self._of(values):
            if form.follow is None or not form.is_made(self.version):
                form.expire()
                continue
            try:
                form.follow(values, start)
            except BaseException:
                form.expire()
                raise

    def _of(self, values: np.ndarray) -> list[tuple[SharedForm, int]]:
        """Return the forms of parameters within a range, each with the element at which the range begins."""
        key = _address(values), values.size
        found = self._found.get(key)
        if found is None:
            with self._lock:
                spans = [(form, (key[0] - _address(form.source)) // values.itemsize) for form in self._forms]
                found = [(form, start) for form, start in spans if -values.size < start < form.source.size]
                self._found[key] = found
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
    """A parameter in one layout: `array`, in parts that several threads can make at the same time.

    `follow(values, start)`, if set, writes the form of a range of the parameter that begins at element `start`, which
    is below 0 where the range begins before the parameter.
    """

    follow: Callable[[np.ndarray, int], object] | None = None

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

    def is_made(self, version: int) -> bool:
        """Return whether all parts are of this version, which is not 0."""
        return bool(version) and version == self._version and not self._missing

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
