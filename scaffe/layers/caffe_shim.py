"""The module that `import caffe` gives to a user's Python layer: the names of pycaffe that such layers need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType

from scaffe.blob import Blob
from scaffe.context import TEST, TRAIN


class BlobVec(list[Blob]):
    """The parameters of a user's layer, which adds them in its setup."""

    def __init__(self, xp: ModuleType):
        super().__init__()
        self.xp = xp

    def add_blob(self, *shape: int) -> None:
        """Append a parameter of this shape, zeros."""
        self.append(Blob(shape, self.xp))


class CaffeLayer:
    """The base class of users' layers, `caffe.Layer`.

    A user's class has the methods setup, reshape and forward (self, bottom, top) and backward (self, top,
    propagate_down, bottom). `param_str` is the prototxt's string, `phase` TRAIN or TEST.
    """

    param_str: str
    phase: int
    blobs: BlobVec


def _stand_in() -> ModuleType:
    module = ModuleType("caffe", __doc__)
    vars(module).update(Layer=CaffeLayer, TRAIN=TRAIN, TEST=TEST)
    return module


def _has_real() -> bool:
    """Return whether a module `caffe` with a file can be imported.

    A folder of that name, such as a checkout of Caffe, is a package for Python too, but has no file.
    """
    loaded = sys.modules.get("caffe")
    if loaded is not None and loaded.__spec__ is None:
        return True  # a module object made by the user's code
    spec = loaded.__spec__ if loaded else find_spec("caffe")
    return spec is not None and spec.origin is not None


@contextmanager
def importable() -> Iterator[None]:
    """Make `import caffe` give the stand-in inside a `with` block, unless a real caffe can be imported."""
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
