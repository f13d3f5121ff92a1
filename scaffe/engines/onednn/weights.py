"""WeightForm: a layer's weights in the layout that a primitive reads, in a form that nets share or an own copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.blob import Values
from scaffe.blobs.shared_forms import SharedForms
from scaffe.engines.onednn.descriptors import Desc, NoFastForm
from scaffe.engines.onednn.operands import Operand
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive, engine_of, reorder

SMALL = 1 << 17  # bytes; fewer are reordered in less time than a thread takes to wait for another
PART = 1 << 21  # bytes of a part, at least: for a smaller one the call of the library costs more than threads gain
ROWS = 64  # a multiple of the blocks in layouts of weights


class WeightForm(Operand):
    """A layer's weights: a form that all nets share, where the context's `forms` last, else an own copy.

    The form is made once for each version of the weights. The own copy is made anew in each fetch, since an update or a
    user can change the weights without changing their Values' version. Weights smaller than SMALL are always copied so.
    """

    def __init__(self, layer: Any, desc: Desc, plain: Desc | None = None, brief: bool = False):
        super().__init__(engine_of(layer), desc, plain, brief)
        is_copied = desc != self._plain and self._plain.nbytes >= SMALL
        self._forms: SharedForms | None = layer.context.forms if is_copied else None
        self._shared: SharedCopy | None = None
        self._seen = -1  # the version of the values in the last fetch from private forms

    def fetch(self, values: Values) -> Memory:
        """Return the weights as a memory, which is valid until they change."""
        version = self._number(values)
        if self._forms is None or not version:
            return super().fetch(values)
        self._version = -1  # the own copy becomes invalid
        if self._shared is None or self._shared.array is not values.array:
            self._shared = SharedCopy(self.engine, self._forms, values.array, self._plain, self.desc)
        return self._shared.fetch(version)

    def _number(self, values: Values) -> int:
        """Return the number of the form's version, 0 where the weights may have been written without notice."""
        forms = self._forms
        if forms is None or forms.version or not forms.private:
            return forms.version if forms else 0
        if values.exposed:  # by a user's call, or at its end, where an array that a user keeps is shown
            return 0
        if values.version != self._seen:
            self._seen = values.version
            forms.changed(values.array)
        return forms.persistent


class SharedCopy:
    """One net's access to a form: a memory over it, and the reorders of its parts."""

    def __init__(self, engine: Onednn, forms: SharedForms, array: np.ndarray, plain: Desc, desc: Desc):
        self.engine, self.array, self.layouts = engine, array, (plain, desc)
        self.areas = areas(engine, plain, desc)
        self.form = forms.of(array, (plain, desc), -(-desc.nbytes // 4), len(self.areas))
        self.memory = Memory(engine, desc, self.form.array)
        self._reorders: list[Primitive | None] = [None] * len(self.areas)

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
