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
    from scaffe import io
    from scaffe.blob import Blob
    from scaffe.classifier import Classifier
    from scaffe.compute import Compute
    from scaffe.context import TEST, TRAIN
    from scaffe.defaults import set_defaults
    from scaffe.detector import Detector
    from scaffe.errors import ScaffeError
    from scaffe.layers.layer import Layer
    from scaffe.monitor.watching import Watching
    from scaffe.net import Net
    from scaffe.netspec import NetSpec, to_proto
    from scaffe.parallel.instances.instances import Instances
    from scaffe.parallel.run import Run
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
    "Classifier": "classifier",
    "Compute": "compute",
    "Detector": "detector",
    "Instances": "parallel.instances.instances",
    "Layer": "layers.layer",
    "Net": "net",
    "NetSpec": "netspec",
    "Run": "parallel.run",
    "ScaffeError": "errors",
    "Solver": "training.solver",
    "Watching": "monitor.watching",
    "get_solver": "training.get_solver",
    "set_defaults": "defaults",
    "to_proto": "netspec",
}


def __getattr__(name: str) -> Any:
    """Return a public name, or a module of this package, imported when it is first asked for."""
    if name in _MODULES:
        return getattr(import_module(f"scaffe.{_MODULES[name]}"), name)
    if find_spec(f"scaffe.{name}"):
        return import_module(f"scaffe.{name}")
    raise AttributeError(f"module 'scaffe' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
