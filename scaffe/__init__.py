"""Train Caffe nets over MPI: S-Caffe's co-design in Python, with pycaffe's names.

import scaffe
solver = scaffe.get_solver("solver.prototxt")
solver.step(100)
solver.net.blobs["ip2"].data

net = scaffe.Net("deploy.prototxt", "weights.caffemodel", scaffe.TEST)
net.forward(data=batch)
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from scaffe.version import __version__ as __version__

if TYPE_CHECKING:
    from scaffe.blob import Blob
    from scaffe.compute import Compute
    from scaffe.context import TEST, TRAIN
    from scaffe.defaults import set_defaults
    from scaffe.errors import ScaffeError
    from scaffe.layers.layer import Layer
    from scaffe.monitor.watching import Watching
    from scaffe.net.net import Net
    from scaffe.parallel.instances.instances import Instances
    from scaffe.parallel.run import Run
    from scaffe.pictures import io
    from scaffe.pictures.classifier import Classifier
    from scaffe.pictures.detector import Detector
    from scaffe.spec.netspec import NetSpec, to_proto
    from scaffe.training.get_solver import get_solver
    from scaffe.training.solver import Solver

__all__ = [
    "TEST",
    "TRAIN",
    "Blob",
    "Classifier",
    "Compute",
    "Detector",
    "Instances",
    "Layer",
    "Net",
    "NetSpec",
    "Run",
    "ScaffeError",
    "Solver",
    "Watching",
    "get_solver",
    "io",
    "set_defaults",
    "to_proto",
]

_MODULES = {
    "TEST": "context",
    "TRAIN": "context",
    "Blob": "blob",
    "Classifier": "pictures.classifier",
    "Compute": "compute",
    "Detector": "pictures.detector",
    "Instances": "parallel.instances.instances",
    "Layer": "layers.layer",
    "Net": "net.net",
    "NetSpec": "spec.netspec",
    "Run": "parallel.run",
    "ScaffeError": "errors",
    "Solver": "training.solver",
    "Watching": "monitor.watching",
    "get_solver": "training.get_solver",
    "set_defaults": "defaults",
    "to_proto": "spec.netspec",
}

_MOVED = {"io": "pictures.io", "netspec": "spec.netspec", "params": "spec.params"}  # as programs know them


def __getattr__(name: str) -> Any:
    """Return a public name, or a module of this package, imported when it is first asked for."""
    if name in _MODULES:
        return getattr(import_module(f"scaffe.{_MODULES[name]}"), name)
    if name in _MOVED:
        return import_module(f"scaffe.{_MOVED[name]}")
    if find_spec(f"scaffe.{name}"):
        return import_module(f"scaffe.{name}")
    raise AttributeError(f"module 'scaffe' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
