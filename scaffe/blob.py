"""Blob: an N-dimensional array of float32 with its gradient, Caffe's unit of data between layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import index
from types import ModuleType
from typing import Any

import numpy as np

from scaffe.blobs.held import Held
from scaffe.errors import CallError, ScaffeError

Shape = tuple[int, ...]


def around(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Return the number of elements before, on and after an axis: any shape as (outer, axis, inner)."""
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


class Form:
    """Values in an engine's own memory layout, with a count of the blobs that hold them."""

    def store(self, array: Any) -> None:
        """Write the values into `array`, in C order."""
        raise NotImplementedError

    def load(self, array: Any) -> None:
        """Overwrite the values with those of `array`, in C order; only for a form that is a `home`."""
        raise NotImplementedError

    def look(self, array: Any) -> None:
        """Write the values into `array` as `store` does, and leave the form as it is: a blob holds it on."""
        self.store(array)

    def hold(self) -> None:
        """Count one more blob that holds the values."""

    def drop(self) -> None:
        """Count one blob less that holds the values."""


class HostCopy(Form):
    """A host copy of a device's values. It replaces the device's values, since a user may have written into it."""

    def __init__(self, array: np.ndarray, xp: ModuleType):
        self.array, self.xp = array, xp

    def store(self, array: Any) -> None:
        """Copy the values to the device."""
        array[...] = self.xp.asarray(self.array)


def on_host(array: Any) -> np.ndarray:
    """Return an array on the host: the array itself, or a copy of a device's array."""
    return array if isinstance(array, np.ndarray) else array.get()


class Values:
    """The values of a blob's data or of its diff: a plain array, or an engine's own form of it.

    The values are in `form` unless it is None, else in `array`. Reading the plain array converts the form.

    - `home`: the form in which an engine has planned the values to lie; None where that is the plain array.
    - `version` changes whenever the values may have changed: an engine set others, or the plain array was returned.
    - `lent`: another blob holds the form too, so it must not be overwritten.
    - deferred: a function writes the values into the array or the home when they are read, unless overwritten first.
    - `gone`: the values were released.
    - `shared`: the memory serves other blobs when these values are not in use.
    - `borrowed`: the memory belongs to an owner that overwrites it after this pass.
    - `exposed`: the blob's `array` was returned, so that it can be written later without a new version.
    """

    __slots__ = ("_write", "array", "borrowed", "exposed", "form", "gone", "home", "lent", "shared", "version")

    def __init__(self, array: Any = None):
        self.array = array
        self.form: Form | None = None
        self.home: Form | None = None
        self.lent = self.gone = self.shared = self.borrowed = self.exposed = False
        self._write: Callable[[Any], object] | None = None
        self.version = 0

    @property
    def empty(self) -> bool:
        """Whether the values were never read or set: they are zeros, without memory."""
        return self.array is None and self.form is None

    def plain(self, shape: Shape, xp: ModuleType) -> Any:
        """Return the plain array, which holds the values from now on."""
        if self.array is None:
            self.array = xp.zeros(shape, np.float32)
        if self.form is not None or self._write is not None:
            self._settle_deferred()
            if self.form is not None:
                self.form.store(self.array)
                self._replace(None)
        self.lent = self.gone = False
        self.version += 1
        return self.array

    def look(self, shape: Shape) -> Any:
        """Return the values in an array on the host that is not to be written; they stay what and where they are."""
        if self.form is None and self._write is None and self.array is not None:
            return self.array
        seen = np.zeros(shape, np.float32)
        if self._write is not None:
            self._write(seen)
        elif self.form is not None:
            self.form.look(seen)
        return seen

    def defer(self, write: Callable[[Any], object]) -> None:
        """Set the values to what `write` writes into the array, or into their home; it runs when they are read."""
        if self.form is not self.home:
            self._replace(self.home)
        self.lent = self.gone = False
        self._write = write if self.array is not None or self.home is not None else None
        self.version += 1

    @property
    def deferred(self) -> Callable[[Any], object] | None:
        """What writes deferred values other than zeros, None where the values are not deferred."""
        return None if self.is_zero else self._write

    def clear(self) -> None:
        """Set the values to zero, deferred."""
        self.defer(_write_zeros)

    def host(self, shape: Shape, xp: ModuleType) -> np.ndarray:
        """Return a device's values in a host copy, which holds the values until the device reads them."""
        if not isinstance(self.form, HostCopy):
            self.take_form(HostCopy(self.plain(shape, xp).get(), xp))
        assert isinstance(self.form, HostCopy)
        return self.form.array

    def settle(self) -> None:
        """Write deferred values, and those of a host copy, to where the values lie: the array, or their home."""
        if self._write is not None or self.form is not self.home:
            self._settle_deferred()
        if self.home is not None and self.form is not self.home:
            if self.array is not None:
                self.home.load(self.array)
            self.array = None
            self._replace(self.home)

    def _settle_deferred(self) -> None:
        if isinstance(self.form, HostCopy):
            self.form.store(self.array)
            self._replace(None)
        if self._write is not None:
            write, self._write = self._write, None
            write(self.array if self.form is None else self.form)

    def to_add(self, shape: Shape, xp: ModuleType) -> tuple[Any, bool]:
        """Return the plain array to add to, and whether to overwrite it instead, since the values are zeros."""
        zeros = self._write is _write_zeros
        if zeros:
            self._write = None
        return self.plain(shape, xp), zeros

    def take(self, array: Any, borrowed: bool = False) -> None:
        """Set the values to `array`, without a copy; a `borrowed` array is valid until the next pass."""
        if self.form is not None:
            self._replace(None)
        self.lent = self.gone = False
        self.array, self._write, self.borrowed = array, None, borrowed
        self.version += 1

    @property
    def is_zero(self) -> bool:
        """Whether the values are deferred zeros: to add to them is to overwrite."""
        return self._write is _write_zeros

    def overwritten(self) -> None:
        """Record that a device has overwritten the plain array, or the home, which alone holds the values now."""
        if self.home is not None:
            self.array = None
        self._replace(self.home)
        self._write = None
        self.version += 1

    def move_in(self, home: Form, shared: bool) -> None:
        """Set the home; the values, in the plain array if any, are kept unless its memory is `shared`."""
        if shared:
            self._replace(None)
            self.array, self._write = None, None
        self.home, self.shared = home, shared
        self.settle()
        self.version += 1

    def move_out(self, shape: Shape, xp: ModuleType) -> None:
        """Move the values from their home, if they have one, to the plain array."""
        if self.home is not None and not self.empty:
            self.plain(shape, xp)
        self.home = None

    def lie(self, array: Any, shared: bool) -> None:
        """Move the plain array to this memory; the values are kept unless it is `shared`."""
        if self.array is not None and not shared:
            self.settle()
            array[...] = self.array
        elif shared:
            self._replace(None)
            self._write = None
        self.array, self.shared = array, shared
        self.version += 1

    def take_form(self, form: Form, lent: bool = False) -> None:
        """Set the values to an engine's `form`, which must not change until the engine sets another."""
        if form is self.form:
            self.lent, self.gone = lent, False
        else:
            self._replace(form, lent)
        self._write = None
        self.version += 1

    def release(self) -> None:
        """Release values in a form, or deferred, which are not read again, so that memory can serve other blobs."""
        if self.form is not None or self.deferred:
            self._replace(None)
            self._write, self.gone = None, True

    def _replace(self, form: Form | None, lent: bool = False) -> None:
        """Replace the form, or remove it."""
        old = self.form
        if form is not None:
            form.hold()
        self.form, self.lent, self.gone = form, lent, False
        if old is not None:
            old.drop()


def _write_zeros(array: Any) -> None:
    array[...] = 0


def _lengths(shape: Sequence[int]) -> Shape:
    """Return a shape that a user may have given."""
    try:
        return tuple(map(index, shape))
    except TypeError:
        raise CallError(f"a blob's shape takes whole numbers, one for each axis, got {shape}") from None


class Blob:
    """Hold `data` and its gradient `diff`, of one shape, each allocated when first used.

    - `data` and `diff` are writable host arrays for users, as in pycaffe. An array that a user keeps shows the current
      values after each public call of the net; the net's `held` keeps track of it.
    - `array` and `diff_array` are the same values where the layers compute (`xp`); layers use these.
    - `values` and `diff_values` keep the memory layout of an engine from layer to layer; engines use these.

    On a device, `data` and `diff` are copies of the values at the time of the call. What a user writes into a copy is
    taken over when the device reads the values next; the next `data` is a new copy.
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
        """Change the shape. The values are kept if the number of elements stays the same, else undefined.

        Raise CallError unless each length is a whole number.
        """
        if shape != self.shape:
            shape = _lengths(shape)
            keep = prod(shape) == self.count
            self.values = self._reshaped(self.values, shape, keep)
            self.diff_values = self._reshaped(self.diff_values, shape, keep)
            self.shape = shape
            self.held.show([self])

    def _reshaped(self, values: Values, shape: Shape, keep: bool) -> Values:
        if not keep or values.empty:
            return Values()
        reshaped = Values(values.plain(self.shape, self.xp).reshape(shape))
        reshaped.borrowed = values.borrowed
        return reshaped

    @property
    def array(self) -> Any:
        """The values where the layers compute, in C order."""
        self.values.exposed = True
        return self.values.plain(self.shape, self.xp)

    @array.setter
    def array(self, array: Any) -> None:
        """Set shape and values to those of `array`, without a copy."""
        if array.shape != self.shape:
            self.reshape(*array.shape)
        self.values.take(array)

    def borrow(self, array: np.ndarray) -> None:
        """Set the values to `array`, which its owner overwrites after this pass. A held array gets a copy."""
        if array.shape != self.shape:
            self.reshape(*array.shape)
        if self.held.holds(self, "array") and not self.values.borrowed:
            self.array[...] = array
        else:
            self.values.take(array, borrowed=True)

    def view(self, blob: Blob) -> None:
        """Set the values to a view of another blob's values, in this blob's shape."""
        array = blob.array
        self.values.take(array if array.shape == self.shape else array.reshape(self.shape), blob.values.borrowed)

    def own(self, part: str) -> np.ndarray:
        """Return the plain `part`, "array" or "diff_array", copied first if its memory is borrowed."""
        array: np.ndarray = self.values.plain(self.shape, self.xp) if part == "array" else self.diff_array
        if part == "array" and self.values.borrowed:
            array = array.copy()
            self.values.take(array)
        return array

    def release_diff(self) -> None:
        """Give up the gradient. One that a user holds stays, in memory of its own."""
        if self.held.holds(self, "diff_array"):
            self.own("diff_array")
        else:
            self.diff_values.release()

    @property
    def diff_array(self) -> Any:
        """The gradient where the layers compute, in C order."""
        return self.diff_values.plain(self.shape, self.xp)

    @diff_array.setter
    def diff_array(self, array: Any) -> None:
        self.diff_values.take(array.reshape(self.shape))

    @property
    def data(self) -> np.ndarray:
        """The values on the host; writing to them changes the blob. Raise ScaffeError if they were not kept."""
        if self.values.shared:
            raise ScaffeError("this blob's values were released after use, as in tests; net.keep_data keeps them")
        return self.held.hand_out(self, "array") if self.xp is np else self.values.host(self.shape, self.xp)

    @property
    def diff(self) -> np.ndarray:
        """The gradient on the host; writing to it changes the blob. Raise ScaffeError if it was not kept."""
        if self.diff_values.gone or self.diff_values.shared:
            raise ScaffeError("this blob's gradient was released after use, as in training; net.keep_diffs keeps it")
        if self.xp is not np:
            return self.diff_values.host(self.shape, self.xp)
        return self.held.hand_out(self, "diff_array")

    @property
    def num(self) -> int:
        """Length of axis 0, 1 if there is no such axis. Caffe's names of the axes: num, channels, height, width."""
        return self._axis(0)

    @property
    def channels(self) -> int:
        """Length of axis 1."""
        return self._axis(1)

    @property
    def height(self) -> int:
        """Length of axis 2."""
        return self._axis(2)

    @property
    def width(self) -> int:
        """Length of axis 3."""
        return self._axis(3)

    def _axis(self, axis: int) -> int:
        return self.shape[axis] if axis < len(self.shape) else 1

    def __repr__(self) -> str:
        return f"Blob{self.shape}"
