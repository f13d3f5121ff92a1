"""Blob: an N-dimensional array of float32 with its gradient, Caffe's unit of data between layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from scaffe.errors import ScaffeError
from scaffe.held import Held

Shape = tuple[int, ...]


def around(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Return how many elements lie before, on and after an axis, so that any array is seen as three axes."""
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


class Form:
    """Values in an engine's own layout; it hears how many blobs hold it."""

    def store(self, array: Any) -> None:
        """Write the values into `array`, C order."""
        raise NotImplementedError

    def hold(self) -> None:
        """Take note that one blob more holds it."""

    def drop(self) -> None:
        """Take note that one blob less holds it."""


class HostCopy(Form):
    """Values on the host while a device holds what they were: whoever asked for them may have written into them."""

    def __init__(self, array: np.ndarray, xp: ModuleType):
        self.array, self.xp = array, xp

    def store(self, array: Any) -> None:
        array[...] = self.xp.asarray(self.array)


def on_host(array: Any) -> np.ndarray:
    """Return an array's values on the host: itself where it lies there, else a copy."""
    return array if isinstance(array, np.ndarray) else array.get()


class Values:
    """One of a blob's two arrays: plain, or in an engine's own form until somebody asks for it plain.

    Exactly one of the two counts: `form` unless it is None, else `array`. `version` changes whenever the values
    may have: an engine gave others, or the plain array was handed out, into which anybody may write. A form that is
    `lent` is another blob's too, so that nobody may write into it. Deferred values are what a function will write into
    the plain array when somebody asks for it, unless they are overwritten first. Values are `gone` after `release`.
    `shared` ones lie in memory that others have when these are not in use, `borrowed` ones in memory that somebody else
    writes after this pass.
    """

    __slots__ = ("_write", "array", "borrowed", "form", "gone", "lent", "shared", "version")

    def __init__(self, array: Any = None):
        self.array = array
        self.form: Form | None = None
        self.lent = self.gone = self.shared = self.borrowed = False
        self._write: Callable[[Any], object] | None = None
        self.version = 0

    @property
    def empty(self) -> bool:
        """Whether nobody has asked for these values or given any: they are zeros."""
        return self.array is None and self.form is None

    def plain(self, shape: Shape, xp: ModuleType) -> Any:
        """Hand out the plain array, which counts from now on."""
        if self.array is None:
            self.array = xp.zeros(shape, np.float32)
        if self.form is not None:
            self.form.store(self.array)
        self._replace(None)
        self.settle()
        self.version += 1
        return self.array

    def defer(self, write: Callable[[Any], object]) -> None:
        """Let the values be what `write(array)` writes, done when somebody asks for them."""
        self._replace(None)
        self._write = write if self.array is not None else None
        self.version += 1

    def clear(self) -> None:
        """Let the values be zeros."""
        self.defer(_write_zeros)

    def host(self, shape: Shape, xp: ModuleType) -> np.ndarray:
        """Hand out a device's values on the host, which count until the device asks for them."""
        if not isinstance(self.form, HostCopy):
            self.take_form(HostCopy(self.plain(shape, xp).get(), xp))
        assert isinstance(self.form, HostCopy)
        return self.form.array

    def settle(self) -> None:
        """Have deferred values, and those that count on the host alone, stand in the array."""
        if isinstance(self.form, HostCopy):
            self.form.store(self.array)
            self._replace(None)
        if self._write is not None:
            self._write(self.array)
            self._write = None

    def to_add(self, shape: Shape, xp: ModuleType) -> tuple[Any, bool]:
        """Hand out the plain array to add to, and whether the values are zeros: then it is to be overwritten."""
        zeros = self._write is _write_zeros
        if zeros:
            self._write = None
        return self.plain(shape, xp), zeros

    def take(self, array: Any, borrowed: bool = False) -> None:
        """Let `array` be the values, plain; if it is `borrowed`, until the next pass."""
        self._replace(None)
        self.array, self._write, self.borrowed = array, None, borrowed
        self.version += 1

    @property
    def is_zero(self) -> bool:
        """Whether the values are zeros that nobody has written yet: whoever adds to them overwrites."""
        return self._write is _write_zeros

    def overwritten(self) -> None:
        """Take note that the plain array, and nothing else, holds the values: a device has written into it."""
        self._replace(None)
        self._write = None
        self.version += 1

    def lie(self, array: Any, shared: bool) -> None:
        """Let the plain array be this one from now on; values survive unless it is `shared`."""
        if self.array is not None and not shared:
            self.settle()
            array[...] = self.array
        elif shared:
            self._replace(None)
            self._write = None
        self.array, self.shared = array, shared
        self.version += 1

    def take_form(self, form: Form, lent: bool = False) -> None:
        """Let an engine's `form` be the values; it must stay as it is until the engine gives another."""
        self._replace(form, lent)
        self._write = None
        self.version += 1

    def release(self) -> None:
        """Give up the values, which nobody reads any more, if they are in a form: its memory serves others then."""
        if self.form is not None:
            self._replace(None)
            self.gone = True

    def _replace(self, form: Form | None, lent: bool = False) -> None:
        """Hold another form, or none."""
        old = self.form
        if form is not None:
            form.hold()
        self.form, self.lent, self.gone = form, lent, False
        if old is not None:
            old.drop()


def _write_zeros(array: Any) -> None:
    array[...] = 0


class Blob:
    """Hold `data` and `diff` of one shape, each allocated when first touched.

    `data` and `diff` are writable arrays on the host, as in pycaffe. One that a user keeps shows the values after each
    public call of the net, whose `held` knows of it. `array` and `diff_array` are the same values where the layers
    compute (`xp`); layers use these. Where that is a device, `data` and `diff` are copies, and show the values that
    were there when they were asked for: what is written into one counts once the device asks for the values, and the
    next `data` is another copy. An engine's layers read and give `values` and `diff_values`, which keep the layout
    that the engine likes from layer to layer.
    """

    def __init__(self, shape: Sequence[int] = (), xp: ModuleType = np):
        self.xp = xp
        self.held = Held()
        self.values, self.diff_values = Values(), Values()
        self.shape: Shape = tuple(shape)

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def reshape(self, *shape: int) -> None:
        """Take another shape. The values survive if the count stays, else they are undefined."""
        if shape != self.shape:
            keep = prod(shape) == self.count
            self.values = self._reshaped(self.values, shape, keep)
            self.diff_values = self._reshaped(self.diff_values, shape, keep)
            self.shape = tuple(shape)
            self.held.show([self])

    def _reshaped(self, values: Values, shape: Shape, keep: bool) -> Values:
        if not keep or values.empty:
            return Values()
        reshaped = Values(values.plain(self.shape, self.xp).reshape(shape))
        reshaped.borrowed = values.borrowed
        return reshaped

    @property
    def array(self) -> Any:
        """The values where the layers compute, C order."""
        return self.values.plain(self.shape, self.xp)

    @array.setter
    def array(self, array: Any) -> None:
        """Let the blob be a view of `array`, whose shape it takes."""
        if array.shape != self.shape:
            self.reshape(*array.shape)
        self.values.take(array)

    def borrow(self, array: np.ndarray) -> None:
        """Let the values be `array`, which somebody else writes after this pass; a user's array gets a copy."""
        if array.shape != self.shape:
            self.reshape(*array.shape)
        if self.held.holds(self, "array") and not self.values.borrowed:
            self.array[...] = array
        else:
            self.values.take(array, borrowed=True)

    def view(self, blob: Blob) -> None:
        """Let the values be another blob's, in this one's shape."""
        array = blob.array
        self.values.take(array if array.shape == self.shape else array.reshape(self.shape), blob.values.borrowed)

    def own(self, part: str) -> np.ndarray:
        """Return the plain `part`, "array" or "diff_array", in memory of the blob's own, or a net's."""
        array: np.ndarray = getattr(self, part)
        if part == "array" and self.values.borrowed:
            array = array.copy()
            self.values.take(array)
        return array

    @property
    def diff_array(self) -> Any:
        """The gradient where the layers compute, C order."""
        return self.diff_values.plain(self.shape, self.xp)

    @diff_array.setter
    def diff_array(self, array: Any) -> None:
        self.diff_values.take(array.reshape(self.shape))

    @property
    def data(self) -> np.ndarray:
        """The values on the host; writing into them changes the blob. Raise ScaffeError where they were not kept."""
        if self.values.shared:
            raise ScaffeError("this blob's values were given up after use, as in tests; net.keep_data keeps them")
        return self.held.hand_out(self, "array") if self.xp is np else self.values.host(self.shape, self.xp)

    @property
    def diff(self) -> np.ndarray:
        """The gradient on the host; writing into it changes the blob. Raise ScaffeError where it was not kept."""
        if self.diff_values.gone or self.diff_values.shared:
            raise ScaffeError("this blob's gradient was given up after use, as in training; net.keep_diffs keeps them")
        if self.xp is not np:
            return self.diff_values.host(self.shape, self.xp)
        return self.held.hand_out(self, "diff_array")

    @property
    def num(self) -> int:
        """Length of axis 0, and so `channels`, `height` and `width`: Caffe's names for up to four axes."""
        return self._axis(0)

    @property
    def channels(self) -> int:
        return self._axis(1)

    @property
    def height(self) -> int:
        return self._axis(2)

    @property
    def width(self) -> int:
        return self._axis(3)

    def _axis(self, axis: int) -> int:
        return self.shape[axis] if axis < len(self.shape) else 1

    def __repr__(self) -> str:
        return f"Blob{self.shape}"
