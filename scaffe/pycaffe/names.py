"""The modules that `caffe` has, and install, which makes `import caffe` give scaffe.pycaffe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

# Of each submodule of pycaffe, the module of scaffe that it is.
MODULES = {
    "_caffe": "scaffe.pycaffe",
    "classifier": "scaffe.classifier",
    "coord_map": "scaffe.coord_map",
    "io": "scaffe.io",
    "layers": "scaffe.layers",
    "net_spec": "scaffe.netspec",
    "params": "scaffe.params",
    "proto": "scaffe.proto",
    "proto.caffe_pb2": "scaffe.proto.caffe_pb2",
    "pycaffe": "scaffe.pycaffe",
}


def submodules(table: Mapping[str, str]) -> dict[str, ModuleType]:
    """Return the modules that are attributes of `caffe`, by name."""
    return {name: import_module(module) for name, module in table.items() if "." not in name}


def install(allow_python_layers: bool = False) -> None:
    """Make `import caffe`, and imports of its submodules, give scaffe.pycaffe and the modules of MODULES."""
    sys.modules["caffe"] = import_module("scaffe.pycaffe")
    for name, module in MODULES.items():
        sys.modules[f"caffe.{name}"] = import_module(module)
