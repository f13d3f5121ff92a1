"""Undo: the values that a broken iteration's updates have replaced."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from scaffe.solvers.owned import Owned
from scaffe.training.undo import Undo


class Packed:
    """Parameters: `changes` are the parts that were changed behind their back."""

    def __init__(self, size: int):
        self.data = self.flat = np.arange(size, dtype=np.float32)
        self.changes: list[slice] = []

    def changed(self, part: slice) -> None:
        self.changes.append(part)


def made() -> tuple[Undo, Packed, np.ndarray]:
    packed = Packed(6)
    history = 10 * packed.data
    undo = Undo(packed, SimpleNamespace(history=[history], owned=Owned([slice(0, 6)])))
    undo.begin()
    return undo, packed, history


def test_updates_of_this_iteration_alone_are_put_back_in_parameters_and_history() -> None:
    undo, packed, history = made()
    for first in (2, 0):
        part = slice(first, first + 2)
        undo.begin()
        undo.keep(part)
        packed.data[part], history[part] = -1, -2
    undo.undo()
    assert packed.data.tolist() == [0, 1, -1, -1, 4, 5] and packed.changes == [slice(None)]
    assert history.tolist() == [0, 10, -2, -2, 40, 50]


def test_what_functions_wrote_before_an_update_is_put_back_too() -> None:
    undo, packed, history = made()
    undo.keep_all()
    packed.data[...] = -1
    undo.keep(slice(0, 2))
    packed.data[:2] = history[:2] = -2
    undo.undo()
    assert packed.data.tolist() == [0, 1, 2, 3, 4, 5]
    assert history.tolist() == [0, 10, 20, 30, 40, 50]


def test_all_updates_of_an_iteration_are_put_back() -> None:
    undo, packed, history = made()
    for first in (4, 0):
        undo.keep(slice(first, first + 2))
        packed.data[first : first + 2] = history[first : first + 2] = -1
    undo.undo()
    assert packed.data.tolist() == [0, 1, 2, 3, 4, 5] and history.tolist() == [0, 10, 20, 30, 40, 50]
