"""The library's handles and descriptors: dnnl_memory_desc_t, dnnl_primitive_desc_t."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import c_char_p, c_float, c_int, c_void_p
from typing import Any

from scaffe.engines.onednn import library as lib

NUMBERS = {lib.F32: "float32", lib.BF16: "bf16"}


class NoFastForm(Exception):
    """oneDNN has no fast implementation for a layer; the text, if any, names what is missing, for the log."""


class Handle:
    """A handle of the library, destroyed with this object by dnnl_`kind`_destroy."""

    def __init__(self, library: lib.Library, kind: str, handle: int):
        self.library, self.handle = library, handle
        free = weakref.finalize(self, getattr(library.dll, f"dnnl_{kind}_destroy"), handle)
        free.atexit = False  # at exit the library frees its objects itself, in the right order


class Desc(Handle):
    """A memory descriptor, dnnl_memory_desc_t: dimensions, layout and data type, float32 or bfloat16."""

    def __init__(self, library: lib.Library, handle: int, shape: Sequence[int]):
        super().__init__(library, "memory_desc", handle)
        self.shape = tuple(shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a buffer with this layout, padding included."""
        size: int = self.library.dll.dnnl_memory_desc_get_size(self.handle)
        return size

    @property
    def kind(self) -> int:
        """The data type: library.F32 or library.BF16."""
        kind = c_int()
        self.library.call("memory_desc_query", self.handle, lib.QUERY_DATA_TYPE, ctypes.byref(kind))
        return kind.value

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Desc) and self.library.equal(self.handle, other.handle))

    __hash__ = None  # type: ignore[assignment]

    @property
    def format(self) -> str:
        """The number format, and the layout unless it is C order, such as "bf16 aBcd16b".

        A layout is named by the axes from the outer to the inner: a, b, ..., in capitals where an axis is divided into
        blocks, and then the sizes and axes of the blocks, as oneDNN names it.
        """
        numbers = NUMBERS.get(self.kind, "other numbers")
        strides = self._numbers(lib.QUERY_STRIDES, len(self.shape))
        blocks = c_int()
        self.library.call("memory_desc_query", self.handle, lib.QUERY_INNER_BLOCKS, ctypes.byref(blocks))
        sizes, inner = (self._numbers(query, blocks.value) for query in (lib.QUERY_INNER_SIZES, lib.QUERY_INNER_AXES))
        axes = sorted(range(len(self.shape)), key=lambda axis: -strides[axis])
        outer = "".join(_letter(axis).upper() if axis in inner else _letter(axis) for axis in axes)
        layout = outer + "".join(f"{size}{_letter(axis)}" for size, axis in zip(sizes, inner, strict=True))
        long = [axis for axis in axes if self.shape[axis] > 1]
        return numbers if long == sorted(long) and not sizes else f"{numbers} {layout}"

    def _numbers(self, query: int, count: int) -> list[int]:
        found = ctypes.POINTER(ctypes.c_int64)()
        self.library.call("memory_desc_query", self.handle, query, ctypes.byref(found))
        return found[:count]


class PrimitiveDesc(Handle):
    """A primitive's descriptor, dnnl_primitive_desc_t; `implementation` is the library's name of the kernel."""

    def __init__(self, library: lib.Library, handle: int, operation: str, arguments: Sequence[Any]):
        super().__init__(library, "primitive_desc", handle)
        self.operation, self.arguments = operation, arguments
        name = c_char_p()
        library.call("primitive_desc_query", handle, lib.QUERY_IMPL_INFO_STR, 0, ctypes.byref(name))
        self.implementation = (name.value or b"").decode()

    def desc(self, query: int, shape: Sequence[int] = (), index: int = 0) -> Desc:
        """Return the descriptor of an argument of this shape, in the layout that the library chose for it."""
        borrowed = self.library.dll.dnnl_primitive_desc_query_md(self.handle, query, index)
        return Desc(self.library, self.library.create("memory_desc_clone", borrowed), shape)


def _letter(axis: int) -> str:
    return chr(ord("a") + axis)


def handles(descs: Sequence[Desc]) -> Any:
    """Return descriptors as a C array, for operations of several sources."""
    return ctypes.cast((c_void_p * len(descs))(*(desc.handle for desc in descs)), c_void_p)


def floats(values: Sequence[float]) -> Any:
    """Return numbers as a C array of float."""
    return ctypes.cast((c_float * len(values))(*values), c_void_p)
