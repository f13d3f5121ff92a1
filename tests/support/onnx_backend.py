"""ONNX's own tests of single ops, which its wheel brings, as nets: python tests/support/onnx_backend.py."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from scaffe.errors import ScaffeError
from scaffe.onnx import into
from scaffe.onnx.imported import Imported
from scaffe.onnx.readers import readers

CLOSE = 1e-6  # of the largest value, beside the tests' own tolerance, 1e-3 of each value
FOLDERS = [
    Path(onnx.__file__).parent / "backend/test/data" / name for name in ("pytorch-operator", "pytorch-converted")
]


class Case(NamedTuple):
    """A test: its model, its inputs by name, and the outputs."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


def cases() -> Iterator[Case]:
    """Iterate over the tests of ops that are read, whose first input and outputs are float32."""
    into.discover()
    for case in (*_of_nodes(), *_of_pytorch()):
        kinds = {node.op_type for node in case.model.graph.node}
        first = next(iter(case.inputs.values()), None)
        arrays = [first, *case.outputs.values()]
        is_float = all(isinstance(one, np.ndarray) and one.dtype == np.float32 for one in arrays)
        if kinds <= {*readers(), "Constant"} and is_float:
            yield case


def _of_nodes() -> Iterator[Case]:
    """Iterate over the tests of single ops, which onnx makes."""
    for one in sorted(collect_testcases(None), key=lambda one: one.name):
        if one.model is not None and one.data_sets and not one.model.functions and "_expanded" not in one.name:
            inputs, outputs = one.data_sets[0]
            yield _case(one.name, one.model, inputs, outputs)


def _of_pytorch() -> Iterator[Case]:
    """Iterate over the models that PyTorch has exported."""
    for path in sorted(found for folder in FOLDERS for found in folder.glob("test_*/model.onnx")):
        parts = [sorted((path.parent / "test_data_set_0").glob(f"{kind}_*.pb")) for kind in ("input", "output")]
        arrays = [
            [numpy_helper.to_array(onnx.TensorProto.FromString(one.read_bytes())) for one in part] for part in parts
        ]
        yield _case(path.parent.name, onnx.load(path), *arrays)


def _case(name: str, model: onnx.ModelProto, inputs, outputs) -> Case:
    constants = {one.name for one in model.graph.initializer}
    given = [one.name for one in model.graph.input if one.name not in constants]
    results = [one.name for one in model.graph.output]
    return Case(name, model, dict(zip(given, inputs, strict=False)), dict(zip(results, outputs, strict=False)))


def run(case: Case) -> tuple[str, str]:
    """Return "passed", "failed" or "skipped", and why: first with all inputs computed, then all but the first."""
    why = ""
    for computed in dict.fromkeys((len(case.inputs), 2, 1)):
        names = list(case.inputs)[:computed]
        if any(case.inputs[name].dtype != np.float32 for name in names):
            continue
        try:
            net, found = _net(case, names)
        except ScaffeError as error:
            why = str(error)
            continue
        return _compared(case, net, names, found)
    return "skipped", why or "its first inputs are no float32"


def _net(case: Case, names: list[str]):
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for name, values in case.inputs.items():
        if name not in names:
            model.graph.initializer.append(numpy_helper.from_array(values, name))
    made = Imported(model, shapes={name: case.inputs[name].shape for name in names})
    return made.net(), [one.name for one in model.graph.output]


def _compared(case: Case, net, names: list[str], outputs: list[str]) -> tuple[str, str]:
    found = net.forward(blobs=[one for one in outputs if one not in net.outputs], **{n: case.inputs[n] for n in names})
    for name in outputs:
        wanted = case.outputs[name]
        if found[name].shape != wanted.shape:
            return "failed", f"{name} has shape {found[name].shape}, not {wanted.shape}"
        finite = np.isfinite(wanted)
        largest = np.abs(wanted[finite]).max(initial=0) or 1
        if not np.allclose(found[name] / largest, wanted / largest, rtol=1e-3, atol=CLOSE, equal_nan=True):
            return "failed", f"{name} differs by {np.abs(found[name] - wanted).max() / largest:.1e} of the largest"
    return "passed", ""


def main() -> int:
    """Print the skipped and the failed tests, and counts."""
    warnings.simplefilter("ignore")
    results = [(case.name, *run(case)) for case in cases()]
    for name, how, why in results:
        if how != "passed":
            print(f"{how} {name}: {why}")
    print({how: sum(one[1] == how for one in results) for how in ("passed", "failed", "skipped")})
    return any(one[1] == "failed" for one in results)


if __name__ == "__main__":
    sys.exit(main())
