"""Fillers: initial values of parameters, as Caffe's of the same names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scaffe.errors import NetError
from scaffe.proto import FillerParameter


def fill(values: np.ndarray, filler: FillerParameter, rng: np.random.Generator, where: str) -> None:
    """Fill `values` (float32, any shape) in place. Raise NetError for an unknown type, naming `where`."""
    if filler.type not in _fillers:
        raise NetError(f"{where}: unknown filler '{filler.type}'; known fillers: {' '.join(sorted(_fillers))}")
    _fillers[filler.type](values, filler, rng, where)


_Filler = Callable[[np.ndarray, FillerParameter, np.random.Generator, str], None]
_fillers: dict[str, _Filler] = {}
