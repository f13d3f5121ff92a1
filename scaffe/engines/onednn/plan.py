"""Plans: what a layer's fast form prepares once for its shapes, and how it reads and gives blobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.blob import Blob, Values
from scaffe.engines.onednn.primitives import Desc, Engine, Memory, NoFastForm, Primitive, passing, reorder
from scaffe.layers.layer import Blobs, Layer
from scaffe.monitor.log import log


class Plan:
    """The primitives and memories of a layer for the shapes that its blobs have.

    Making one raises NoFastForm where oneDNN is no help; that must come to light here, backward pass included.
    """

    def __init__(self, layer: Any, bottom: Blobs, top: Blobs):
        self.layer, self.engine = layer, layer.context.engine

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        """Compute the tops' values."""
        raise NotImplementedError

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute the bottoms' diff values and add to the parameters' diffs."""
        raise NotImplementedError


class Planned(Layer):
    """Mix into a reference layer: compute by `plan_type`, or as the reference does where that gives no plan.

    The plan is made in the first forward pass: by the thread that runs it, and when the bottoms' layouts are known.
    """

    plan_type: type[Plan]
    _plan: Plan | None = None
    _planned = False
    _shapes: list[tuple[int, ...]] | None = None

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        shapes = [blob.shape for blob in bottom]
        if shapes != self._shapes:
            self._shapes = shapes
            self.replan()

    def replan(self) -> None:
        self._plan, self._planned = None, False

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not self._planned:
            self._make_plan(bottom, top)
        if self._plan is None:
            super().forward(bottom, top)
        else:
            self.context.engine.enter()
            self._plan.forward(bottom, top)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not self._planned:  # another layer has computed the forward pass
            self._make_plan(bottom, top)
        if self._plan is None:
            super().backward(top, propagate_down, bottom)
        else:
            self._plan.backward(top, propagate_down, bottom)

    def _make_plan(self, bottom: Blobs, top: Blobs) -> None:
        self._planned = True
        self.context.engine.enter()
        try:
            self._plan = self.plan_type(self, bottom, top)
        except NoFastForm as reason:
            if reason.args:
                log.info("layer '%s' (%s) computes in numpy: %s", self.name, self.type, reason)


class Inlet:
    """A blob's values in the layout that a primitive reads: the very memory that the blob has, or a reordered copy.

    `plain` is how the blob's array lies, C order unless told. A `brief` one's copy is good until `done`.
    """

    def __init__(self, engine: Engine, desc: Desc, plain: Desc | None = None, brief: bool = False):
        self.engine, self.desc, self.brief = engine, desc, brief
        self.memory: Memory
        self._plain = plain or engine.plain(desc.shape)
        self._over: Memory | None = None  # over the blob's plain array
        self._copy: Memory | None = None
        self._source: Memory | None = None
        self._reorder: Primitive | None = None
        self._version = -1

    def fetch(self, values: Values) -> Memory:
        """Return the values as a memory, which is good until they change."""
        source = values.form if isinstance(values.form, Memory) else self._wrapped(values)
        if source is not self._source:
            self._connect(source)
        if self._reorder is not None:
            self.memory.taken()
            self._reorder.run()
        self._version = values.version
        return self.memory

    def recall(self, values: Values) -> Memory:
        """Return the values as the last fetch did, fetched again only if they may have changed since."""
        return self.memory if values.version == self._version else self.fetch(values)

    def done(self) -> None:
        """Let the memory of a copy serve others."""
        if self.brief and self._copy is not None:
            self._copy.done()
            self._version = -1

    def _connect(self, source: Memory) -> None:
        self._source, self._reorder = source, None
        if source.desc == self.desc:
            self.memory = source
        else:
            self._copy = self._copy or (passing if self.brief else Memory)(self.engine, self.desc)
            self.memory, self._reorder = self._copy, reorder(source, self._copy)

    def _wrapped(self, values: Values) -> Memory:
        """Return a memory over the plain array."""
        known = values.form is None and values.array is not None
        array = values.array if known else values.plain(self.desc.shape, np)
        if not array.flags.c_contiguous:
            strides = [stride // array.itemsize for stride in array.strides]
            return Memory(self.engine, self.engine.strided(array.shape, strides), array)
        if self._over is None:
            self._over = Memory(self.engine, self._plain, array)
        self._over.point(array)
        return self._over


def give(values: Values, memory: Memory) -> None:
    """Let a memory that was just written be a blob's values; a plain one is its plain array at once."""
    if memory.array is not None:
        values.take(memory.array)
    else:
        values.take_form(memory)


def layout_of(engine: Engine, values: Values, shape: Sequence[int]) -> Desc:
    """Return the layout in which a blob's values are now."""
    return values.form.desc if isinstance(values.form, Memory) else engine.plain(shape)


class Gradient:
    """A parameter's gradient as a primitive writes it, added to the plain one after each run.

    The memory is to be `taken` before a run.
    """

    def __init__(self, engine: Engine, desc: Desc):
        self.memory = passing(engine, desc)
        self._target: Memory | None = None
        self._plain = engine.plain(desc.shape)

    def add_to(self, blob: Blob) -> None:
        """Add what the primitive wrote to the blob's diff."""
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
        self.memory.done()
