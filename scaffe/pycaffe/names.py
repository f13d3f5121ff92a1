"""The modules that `caffe` has, and install, which makes `import caffe` give scaffe.pycaffe."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

from scaffe.defaults import get_defaults, set_defaults
from scaffe.errors import ScaffeError
from scaffe.layers import caffe_shim

# Of each submodule of pycaffe, the module of scaffe that it is.
MODULES = {
    "_caffe": "scaffe.pycaffe",
    "classifier": "scaffe.pictures.classifier",
    "coord_map": "scaffe.spec.coord_map",
    "detector": "scaffe.pictures.detector",
    "draw": "scaffe.tools.caffe_draw",
    "io": "scaffe.pictures.io",
    "layers": "scaffe.layers",
    "net_spec": "scaffe.spec.netspec",
    "params": "scaffe.spec.params",
    "proto": "scaffe.proto",
    "proto.caffe_pb2": "scaffe.proto.caffe_pb2",
    "pycaffe": "scaffe.pycaffe",
}
ALIAS = str(Path(__file__).parent / "alias")
CONSENT = "SCAFFE_ALLOW_PYTHON_LAYERS"  # an environment variable, which processes inherit


def submodules(table: Mapping[str, str]) -> dict[str, ModuleType]:
    """Return the modules that are attributes of `caffe`, by name."""
    return {name: import_module(module) for name, module in table.items() if "." not in name}


def modules(package: str = "caffe") -> dict[str, ModuleType]:
    """Return `caffe` and all its submodules, by their names in sys.modules as those of `package`."""
    submodules = {f"{package}.{name}": import_module(module) for name, module in MODULES.items()}
    return {package: import_module("scaffe.pycaffe")} | submodules


def install(allow_python_layers: bool = False, replace: bool = False) -> None:
    """Make `import caffe` give scaffe.pycaffe, and `import caffe.io` and so on the modules of MODULES.

    This holds for this process, and for those that multiprocessing starts. `allow_python_layers` lets nets and solvers
    made from now on run Python layers, unless they are given a Compute; so does the environment variable
    SCAFFE_ALLOW_PYTHON_LAYERS=1. Raise ScaffeError where another caffe is imported or installed, unless this is to
    `replace` it.
    """
    other = other_caffe()
    if other and not replace:
        raise ScaffeError(
            f"another caffe is here, {other}: write `import scaffe.pycaffe as caffe`, or replace that one in this "
            "process with scaffe.pycaffe.install(replace=True)"
        )
    for name in [name for name in sys.modules if name.split(".")[0] == "caffe"]:
        del sys.modules[name]
    sys.modules.update(modules())
    if ALIAS not in sys.path:
        sys.path.insert(0 if other else len(sys.path), ALIAS)  # where it would be found before the other
    if allow_python_layers:
        os.environ[CONSENT] = "1"
    follow_consent()


def other_caffe() -> str:
    """Return the file of a module `caffe` that is imported or installed and is not scaffe's; "" where there is none."""
    found = caffe_shim.found()
    return "" if found and _is_ours(found) else found


def _is_ours(file: str) -> bool:
    """Return whether a file is scaffe.pycaffe's, or one that installs it, such as that of jobs/caffe-alias."""
    return os.path.isfile(file) and b"scaffe.pycaffe" in Path(file).read_bytes()


def follow_consent() -> None:
    """Allow Python layers where the environment variable does."""
    if os.environ.get(CONSENT) == "1":
        set_defaults(compute=replace(get_defaults().compute, allow_python_layers=True))
