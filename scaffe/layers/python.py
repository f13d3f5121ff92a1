"""Python: a layer that runs a user's Python class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from scaffe.layers import caffe_shim
from scaffe.layers.layer import ANY, Blobs, Layer, register


class Python(Layer):
    """Run the class `layer` of `module`: a caffe.Layer with setup, reshape, forward and backward, as in pycaffe.

    The user's object has `param_str`, `phase` and `blobs`; its reshape runs before each forward pass. Raise NetError
    unless Python layers are allowed, since a prototxt from elsewhere could run any code.

    A loss is assumed to be a mean over this rank's samples: its weight is multiplied by this rank's share of the global
    batch. The layer must not combine samples, which cannot be checked. Each rank has its own object;
    `share_in_parallel` has no effect.
    """

    bottoms = ANY
    tops = ANY
    in_place = True
    reshapes_always = True
    unsaved = "its object can have a state"

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        if not self.context.compute.allow_python_layers:
            raise self.error(
                "runs code that the prototxt names; allow it with --allow-python-layers, "
                "or allow_python_layers=True in Python"
            )
        self.blobs = caffe_shim.BlobVec(self.xp)
        found = self._find()
        # A subclass, not an instance: a real caffe.Layer has a property `blobs` and a constructor for C++ objects.
        kind: Any = type(found.__name__, (found,), {"blobs": self.blobs})
        self.user = kind.__new__(kind)
        self.user.param_str, self.user.phase = self.param.python_param.param_str, self.context.phase
        self.user.setup(bottom, top)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the user's object, which programs for pycaffe expect in `net.layers`."""
        if name == "user":
            raise AttributeError(f"layer '{self.name}' is not set up yet")
        return getattr(self.user, name)

    def _find(self) -> type:
        """Return the user's class. Raise NetError if it cannot be imported."""
        param = self.param.python_param
        for field in ("module", "layer"):
            if not getattr(param, field):
                raise self.error(f"python_param needs {field}")
        try:
            with caffe_shim.importable():
                module = import_module(param.module)
        except ImportError as error:
            raise self.error(f"can't import module '{param.module}' ({error}); is its folder in PYTHONPATH?") from error
        found = getattr(module, param.layer, None)
        if not isinstance(found, type):
            raise self.error(f"module '{param.module}' ({module.__file__}) has no class '{param.layer}'")
        return found

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.user.reshape(bottom, top)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        with self._showing(bottom, top):
            self.user.forward(bottom, top)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        with self._showing(bottom, top):
            self.user.backward(top, list(propagate_down), bottom)

    @contextmanager
    def _showing(self, bottom: Blobs, top: Blobs) -> Iterator[None]:
        """Bring the arrays that the user's code holds of its blobs up to date, and read back what it wrote."""
        blobs = *bottom, *top, *self.blobs
        for blob in blobs:
            blob.held.show([blob])
        yield
        for blob in blobs:
            blob.held.absorb([blob])

    def loss_weight(self, top_index: int) -> float:
        return super().loss_weight(top_index) * self.context.share

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if bottom else "it makes its own data"


register("Python", Python)
