"""The module that `import caffe` gives to a user's Python layer: the names of pycaffe that such layers need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
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
    propagate_down, bottom). `param_str` is the prototxt's string, `phase` TRAIN or TEST, `type` the layer's type.
    """

    type = "Python"
    param_str: str
    phase: int
    blobs: BlobVec


def _stand_in() -> dict[str, ModuleType]:
    """Return the modules that users' modules are given where scaffe.pycaffe is not imported."""
    module = ModuleType("caffe", __doc__)
    vars(module).update(Layer=CaffeLayer, TRAIN=TRAIN, TEST=TEST)
    return {"caffe": module}


_modules: Callable[[], Mapping[str, ModuleType]] = _stand_in


def provide(modules: Callable[[], Mapping[str, ModuleType]]) -> None:
    """Give users' modules these modules, by name, in place of the stand-in, as scaffe.pycaffe does."""
    global _modules
    _modules = modules


def found() -> str:
    """Return the file of the module `caffe` that is imported or can be, "" where there is none.

    A folder of that name, such as a checkout of Caffe, is a package for Python too, but has no file.
    """
    loaded = sys.modules.get("caffe")
    if loaded is not None and loaded.__spec__ is None:
        return "a module that this program made"
    spec = loaded.__spec__ if loaded else find_spec("caffe")
    return spec.origin or "" if spec else ""


@contextmanager
def importable() -> Iterator[None]:
    """Make `import caffe` give what `provide` was given inside a `with` block, unless another can be imported."""
    if found():
        yield
        return
    given = _modules()
    before = {name: module for name in given if (module := sys.modules.get(name))}
    sys.modules.update(given)
    try:
        yield
    finally:
        for name in given:
            sys.modules.pop(name, None)
        sys.modules.update(before)
