"""How primitives read and write blobs: operands, gradients of parameters, and the assignment of results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.blob import Blob, Values
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc
from scaffe.engines.onednn.pooled_memory import pooled
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive, reorder


class Operand:
    """A blob's values in the layout that a primitive reads: the blob's own memory, or a reordered copy.

    `plain` is the layout of the blob's array, by default C order. The copy of a `brief` operand is valid until
    `release`; its buffer belongs to the engine's pool.
    """

    def __init__(self, engine: Onednn, desc: Desc, plain: Desc | None = None, brief: bool = False):
        self.engine, self.desc, self.brief = engine, desc, brief
        self.memory: Memory
        self._plain = plain or engine.plain(desc.shape)
        self._over: Memory | None = None  # over the blob's plain array
        self._copy: Memory | None = None
        self._source: Memory | None = None
        self._reorder: Primitive | None = None
        self._version = -1

    def fetch(self, values: Values) -> Memory:
        """Return the values as a memory, which is valid until they change."""
        source = values.form if isinstance(values.form, Memory) else self._wrapped(values)
        if source is not self._source:
            self._connect(source)
        if self._reorder is not None:
            self.memory.acquire()
            self._reorder.run()
        self._version = values.version
        return self.memory

    def recall(self, values: Values) -> Memory:
        """Return the memory of the last fetch; fetch again only where the values may have changed since."""
        return self.memory if values.version == self._version else self.fetch(values)

    def release(self) -> None:
        """Return the buffer of a brief operand's copy to the pool."""
        if self.brief and self._copy is not None:
            self._copy.release()
            self._version = -1

    def _connect(self, source: Memory) -> None:
        self._source, self._reorder = source, None
        if source.desc == self.desc:
            self.memory = source
        else:
            self._copy = self._copy or (pooled if self.brief else Memory)(self.engine, self.desc)
            self.memory, self._reorder = self._copy, reorder(source, self._copy)

    def _wrapped(self, values: Values) -> Memory:
        """Return a memory over the plain array."""
        known = values.form is None and values.array is not None
        array = values.array if known else values.plain(self.desc.shape, np)
        if self._over is not None and array is self._over.buffer:
            return self._over
        if not array.flags.c_contiguous:
            strides = [stride // array.itemsize for stride in array.strides]
            return Memory(self.engine, self.engine.strided(array.shape, strides), array)
        if self._over is None:
            self._over = Memory(self.engine, self._plain, array)
        self._over.point(array)
        return self._over


def assign(values: Values, memory: Memory) -> None:
    """Assign a memory that was just written to a blob's values; one in the plain layout becomes the blob's array."""
    if memory.plain:
        values.take(memory.buffer)
    else:
        values.take_form(memory)


def layout_of(engine: Onednn, values: Values, shape: Sequence[int], kind: int = lib.F32) -> Desc:
    """Return the current layout of a blob's values, with the data type `kind`."""
    return engine.retyped(values.form.desc if isinstance(values.form, Memory) else engine.plain(shape), kind)


class Gradient:
    """A parameter's gradient in the layout that a primitive writes, added to the parameter's diff after each run.

    Call `memory.acquire` before a run.
    """

    def __init__(self, engine: Onednn, desc: Desc):
        self.memory = pooled(engine, desc)
        self._target: Memory | None = None
        self._plain = engine.plain(desc.shape)

    def add_to(self, blob: Blob) -> None:
        """Add the gradient to the blob's diff and release the memory."""
        diff, zeros = blob.diff_values.to_add(blob.shape, np)
        if self.memory.array is not None:
            written = self.memory.array.reshape(diff.shape)
            np.copyto(diff, written) if zeros else np.add(diff, written, out=diff)
            return
        if self._target is None:
            self._target = Memory(self.memory.engine, self._plain, diff)
            self._copy, self._sum = (reorder(self.memory, self._target, add) for add in (False, True))
        self._target.point(diff)
        (self._copy if zeros else self._sum).run()
        self.memory.release()
