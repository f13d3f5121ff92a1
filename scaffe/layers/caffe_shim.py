"""What a user's Python layer finds as `import caffe`: the names of pycaffe that layers are written with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType

from scaffe.blob import Blob
from scaffe.context import TEST, TRAIN


class BlobVec(list[Blob]):
    """A layer's parameters, which it adds itself."""

    def __init__(self, xp: ModuleType):
        super().__init__()
        self.xp = xp

    def add_blob(self, *shape: int) -> None:
        """Add a parameter of zeros."""
        self.append(Blob(shape, self.xp))


class Layer:
    """The base of a user's layer, which has setup, reshape, forward (self, bottom, top) and backward (self, top,
    propagate_down, bottom). `param_str` is the prototxt's, `phase` TRAIN or TEST."""

    param_str: str
    phase: int
    blobs: BlobVec


def _stand_in() -> ModuleType:
    module = ModuleType("caffe", __doc__)
    vars(module).update(Layer=Layer, TRAIN=TRAIN, TEST=TEST)
    return module


def _has_real() -> bool:
    """Say whether there is a module caffe with a file.

    A mere folder of that name, Caffe's checkout say, is a package to Python too, but one without a file.
    """
    loaded = sys.modules.get("caffe")
    if loaded is not None and loaded.__spec__ is None:
        return True  # somebody made it
    spec = loaded.__spec__ if loaded else find_spec("caffe")
    return spec is not None and spec.origin is not None


@contextmanager
def importable() -> Iterator[None]:
    """Let `import caffe` find the stand-in for as long as this lasts, unless there is a real caffe."""
    if _has_real():
        yield
        return
    folder = sys.modules.get("caffe")
    sys.modules["caffe"] = _stand_in()
    try:
        yield
    finally:
        del sys.modules["caffe"]
        if folder is not None:
            sys.modules["caffe"] = folder
