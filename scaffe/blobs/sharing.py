"""Sharing: nets whose parameters are the same memory, and what happens when that memory moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

from scaffe.blob import Blob
from scaffe.blobs.held import Held
from scaffe.blobs.packed import PackedParameters
from scaffe.engine import Engine
from scaffe.errors import ScaffeError, ShapeError

Pairs = Sequence[tuple[Blob, Blob]]  # a net's parameter blobs, each with another net's


class Sharing:
    """One net's parameters, with the nets whose parameters are views of them."""

    def __init__(
        self, name: str, params: Mapping[str, Sequence[Blob]], packed: PackedParameters, held: Held, engine: Engine
    ):
        self.name, self.params, self.packed, self.held, self.engine = name, params, packed, held, engine
        self._viewers: WeakSet[Sharing] = WeakSet()

    def share_with(self, other: Sharing) -> None:
        """Make the parameters of both nets the same memory, for the layers that both have by name.

        They have the values of `other`, and are its memory, unless this net is a solver's, whose parameters stay where
        they are. Raise ShapeError where a layer's parameters differ in number or shape, and ScaffeError where both nets
        are solvers'; nothing has changed then.
        """
        pairs = self._common(other)
        if not self.packed.pinned:
            self._leave(pairs)
            self._view(other, pairs)
            return
        if other.packed.pinned:
            raise ScaffeError(
                f"nets '{self.name}' and '{other.name}' are both solvers', whose parameters stay where they are; "
                "save one net's weights, and load them with the other's copy_from"
            )
        for mine, theirs in pairs:
            mine.array[...] = theirs.array
        pairs = [(theirs, mine) for mine, theirs in pairs]
        with other.held:
            other._leave(pairs)
            other._view(self, pairs)

    def move(self, allocate: Callable[[int], Any], gradients: bool = True) -> bool:
        """Move the parameters to other memory, for all nets that share them; without `gradients` these become zeros.

        Return whether users still have arrays over the old memory.
        """
        before = [(blob, blob.values.array) for blob in self._blobs()]  # which keeps the arrays, and so their ids
        old = self.packed.move(allocate, gradients)
        self._move_viewers(self, {id(array): blob for blob, array in before})
        return any(self.is_held_in(memory) for memory in old)

    def follow(self, other: Sharing) -> None:
        """Share the parameters of the net that takes this one's place, as do all nets that share this one's."""
        if other is self:
            return
        before = [(theirs, mine.values.array) for mine, theirs in self._common(other)]  # which keeps the arrays' ids
        self.share_with(other)
        other._move_viewers(self, {id(array): blob for blob, array in before})

    def is_held_in(self, memory: np.ndarray) -> bool:
        """Return whether users hold arrays in this memory, of this net or of nets that share its parameters."""
        nets: list[Sharing] = [self]
        for net in nets:  # which grows
            nets += [one for one in net._viewers if one not in nets]
        return any(one.held.lie_in(memory) for one in nets)

    def _blobs(self) -> list[Blob]:
        return [blob for blobs in self.params.values() for blob in blobs]

    def _common(self, other: Sharing) -> list[tuple[Blob, Blob]]:
        """Return the parameters of the layers that both nets have by name. Raise ShapeError where they differ."""
        pairs: list[tuple[Blob, Blob]] = []
        for name in (name for name in self.params if name in other.params):
            mine, theirs = self.params[name], other.params[name]
            if len(mine) != len(theirs):
                raise ShapeError(f"can't share {name}: {len(mine)} parameter blobs here, {len(theirs)} there")
            for i, (blob, source) in enumerate(zip(mine, theirs, strict=True)):
                if blob.shape != source.shape:
                    raise ShapeError(f"can't share {name}[{i}]: shape {blob.shape} here, {source.shape} there")
            pairs += zip(mine, theirs, strict=True)
        return pairs

    def _leave(self, pairs: Pairs) -> None:
        """Leave users' arrays of parameters that were a third net's to that net, whose memory they are."""
        for mine, theirs in pairs:
            if mine.values.array is not theirs.values.array and not self.packed.owns(mine):
                self.held.forget(mine, "array")

    def _view(self, other: Sharing, pairs: Pairs) -> None:
        """Make the first of each pair, a parameter of this net, a view of the second, which is `other`'s."""
        self.packed.expose()
        other.packed.expose()
        for mine, theirs in pairs:
            self.engine.view(mine, theirs)
        self.packed.lie_in(other.packed, pairs)
        other._viewers.add(self)
        self.engine.moved()

    def _move_viewers(self, owner: Sharing, moved: Mapping[int, Blob]) -> None:
        """Make the nets that share parameters with `owner` view ours; `moved` are ours by their old arrays' ids."""
        for viewer in list(owner._viewers):
            pairs = [(blob, moved[key]) for blob in viewer._blobs() if (key := id(blob.values.array)) in moved]
            if pairs:
                with viewer.held:
                    viewer._view(self, pairs)
                    self._move_viewers(viewer, moved)
