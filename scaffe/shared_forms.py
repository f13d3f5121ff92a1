"""SharedForms: parameters in an engine's own layout, made once for all nets that share the parameters' memory.

A net by itself reorders its weights in each pass, since an update changes them in place. Instances would all do that
same work.
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
    """The forms of the parameters that several nets share. The contexts of these nets have the same object.

    The scheduler opens a block `with forms.keep()` around an iteration or a test pass. In the block each form is made
    once, by the threads that need it first, and serves all passes of all nets. Outside of it each net makes its own.

    A form's memory is first written, and so placed, by the threads that make it. Nets whose parameters lie in different
    memory, such as those of different NUMA domains, have different forms.
    """

    def __init__(self) -> None:
        self.version = 0  # the number of the block that is open; 0 outside
        self._versions = count(1)
        self._forms: WeakSet[SharedForm] = WeakSet()
        self._lock = Lock()

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Keep each form from its first use to the end of the block, which all nets' passes are in.

        No parameter changes between its first and its last use in the block. Training allows that: a parameter is
        received before its first layer's forward pass, and updated after all instances have given its gradient.
        """
        self.version = next(self._versions)
        try:
            yield
        finally:
            self.version = 0

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
        return bool(source.ctypes.data == self.source.ctypes.data and layouts == self.layouts)

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
