"""WeightForm: a layer's weights in the layout that a primitive reads, in a form that nets share or an own copy."""

from __future__ import annotations

from threading import get_ident
from typing import Any

import numpy as np

from scaffe.blob import Shape, Values
from scaffe.context import TRAIN
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc, NoFastForm
from scaffe.engines.onednn.operands import Operand
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive, engine_of, reorder
from scaffe.errors import OnednnError
from scaffe.shared_forms import SharedForms

SMALL = 1 << 17  # bytes; fewer are reordered in less time than a thread takes to wait for another
PART = 1 << 18  # bytes of a part, at least
ROWS = 64  # a multiple of the blocks in layouts of weights


class WeightForm(Operand):
    """A layer's weights: in a block of the context's `forms.keep` a form that all nets share, else an own copy.

    The form is made once for each version of the weights. The own copy is made anew in each fetch, since an update or a
    user changes the weights without changing their Values' version. Weights smaller than SMALL are always copied so.
    """

    def __init__(self, layer: Any, desc: Desc, plain: Desc | None = None, brief: bool = False):
        super().__init__(engine_of(layer), desc, plain, brief)
        is_copied = desc != self._plain and self._plain.nbytes >= SMALL
        self._forms: SharedForms | None = layer.context.forms if is_copied else None
        self._shared: SharedCopy | None = None

    def fetch(self, values: Values) -> Memory:
        """Return the weights as a memory, which is valid until they change."""
        if self._forms is None or not self._forms.version:
            return super().fetch(values)
        self._version = -1  # the own copy becomes invalid
        if self._shared is None or self._shared.array is not values.array:
            self._shared = SharedCopy(self.engine, self._forms, values.array, self._plain, self.desc)
        return self._shared.fetch(self._forms.version)


class SharedCopy:
    """One net's access to a form: a memory over it, and the reorders of its parts."""

    def __init__(self, engine: Onednn, forms: SharedForms, array: np.ndarray, plain: Desc, desc: Desc):
        self.engine, self.array, self.layouts = engine, array, (plain, desc)
        self.areas = areas(engine, plain, desc)
        self.form = forms.of(array, (plain, desc), -(-desc.nbytes // 4), len(self.areas))
        self.memory = Memory(engine, desc, self.form.array)
        self._reorders: list[Primitive | None] = [None] * len(self.areas)
        if rounds(engine, plain, desc):
            self.form.follow = self.form.follow or Rounding(engine, self.form.array, array.size)

    def fetch(self, version: int) -> Memory:
        """Return the form of this version, of which this net makes what no other one has begun."""
        self.form.complete(version, self._make)
        return self.memory

    def _make(self, part: int) -> None:
        run = self._reorders[part]
        if run is None:
            source, target = self.areas[part]
            run = reorder(Memory(self.engine, source, self.array), Memory(self.engine, target, self.form.array))
            self._reorders[part] = run
        run.run()


def product_layout(layer: Any, shape: Shape) -> Desc:
    """Return the layout of an inner product's weights in bfloat16: in training C order, which an update rounds into.

    A reorder into the library's own layout takes longer than its faster products save, unless they run many times.
    """
    engine = engine_of(layer)
    return (engine.plain if layer.context.phase == TRAIN else engine.any)(shape, engine.kind)


class Rounding:
    """Round a range of a parameter's elements to bfloat16, where the form has their order: in the update's cache.

    Each thread has primitives of its own, one for each number of elements.
    """

    def __init__(self, engine: Onednn, target: np.ndarray, count: int):
        self.engine, self.target, self.count = engine, target, count
        self._reorders: dict[tuple[int, int], Primitive] = {}

    def __call__(self, values: np.ndarray, start: int) -> None:
        """Round `values`, whose first is element `start` of the parameter; those outside of it are left out."""
        first, stop = max(start, 0), min(start + values.size, self.count)
        if first % 2:
            raise OnednnError(f"a range of bfloat16 numbers begins at element {first}; expected an even one")
        self.engine.visit()
        run = self._reorder(stop - first)
        run.memories[lib.ARG_SRC].point(values[first - start : stop - start])
        run.memories[lib.ARG_DST].point(self.target[first // 2 : -(-stop // 2)])
        run.run()

    def _reorder(self, count: int) -> Primitive:
        key = get_ident(), count
        if key not in self._reorders:
            descs = [self.engine.plain((count,), kind) for kind in (lib.F32, lib.BF16)]
            source, target = (Memory(self.engine, desc, np.empty(0, np.float32)) for desc in descs)
            self._reorders[key] = reorder(source, target)
        return self._reorders[key]


def rounds(engine: Onednn, plain: Desc, desc: Desc) -> bool:
    """Return whether a form has the order of the parameter's array, C order, and bfloat16 numbers."""
    return plain == engine.plain(desc.shape) and desc == engine.plain(desc.shape, lib.BF16)


def areas(engine: Onednn, plain: Desc, desc: Desc) -> list[tuple[Desc, Desc]]:
    """Divide weights along axis 0 into parts of at least PART bytes; return each in both layouts.

    They are one part where a layout has no such parts.
    """
    rows = desc.shape[0] // max(1, plain.nbytes // PART)
    rows = max(1, rows if desc.shape[0] <= ROWS else -(-rows // ROWS) * ROWS)
    try:
        return [_rows(engine, plain, desc, start, rows) for start in range(0, desc.shape[0], rows)]
    except NoFastForm:
        return [(plain, desc)]


def _rows(engine: Onednn, plain: Desc, desc: Desc, start: int, rows: int) -> tuple[Desc, Desc]:
    shape = min(rows, desc.shape[0] - start), *desc.shape[1:]
    offsets = start, *[0] * (len(shape) - 1)
    return engine.part(plain, shape, offsets), engine.part(desc, shape, offsets)
