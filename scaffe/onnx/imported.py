"""A net of an ONNX model: ops as layers, constants folded and as parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import text_format

from readers.files import make_folder
from scaffe.compute import Compute
from scaffe.context import TEST
from scaffe.engine import REFERENCE
from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically
from scaffe.near import near
from scaffe.net.net import Net
from scaffe.onnx import into
from scaffe.onnx.grown_net import GrownNet
from scaffe.onnx.library import library
from scaffe.onnx.readers import Op, Unreadable, Value, readers
from scaffe.proto import NetParameter

DEPLOY, WEIGHTS = "deploy.prototxt", "weights.caffemodel"
RANDOM = ("Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike")  # ops that may have constants alone
COMMENT = "# Made of {} by scaffe import-onnx.\n"


class Imported:
    """The net of an ONNX model, with the values of its parameters.

    `model` is a file or an onnx.ModelProto, `shapes` has those of inputs whose file leaves sizes open; an open batch is
    `batch`. Raise ScaffeError, with node and op, for what no layer does, and without onnx.
    """

    def __init__(
        self, model: Any, batch: int = 1, shapes: Mapping[str, Sequence[int]] | None = None, where: str = "model"
    ):
        self.onnx, self.where = library(), where
        into.discover()
        self.model = self._loaded(model) if isinstance(model, str) else model
        graph = self.model.graph
        self.opset = next((one.version for one in self.model.opset_import if one.domain in ("", "ai.onnx")), 1)
        self.layers = GrownNet(graph.name or "net")
        to_array = self.onnx.numpy_helper.to_array
        self.values: dict[str, Value] = {one.name: to_array(one) for one in graph.initializer}
        names = [one.name for one in graph.input if one.name not in self.values]
        for name in set(shapes or ()) - set(names):
            raise ScaffeError(f"{where}: --shape {name}: no such input{near(name, names, 'inputs')}")
        for one in graph.input:
            if one.name in names:
                shape = (shapes or {}).get(one.name) or self._shape(one, batch)
                self.values[one.name] = self.layers.input(one.name, shape)
        self._used = {one.name for one in graph.output}
        for node in self._needed(graph.node):
            self._read(node)
        self._name_outputs([one.name for one in graph.output])

    def _needed(self, nodes: Sequence[Any]) -> list[Any]:
        """Return the nodes that an output is computed by, in order, and note what they use."""
        found = []
        for node in reversed(nodes):
            if self._used & set(node.output):
                self._used |= set(node.input)
                found.append(node)
        return found[::-1]

    def _loaded(self, path: str) -> Any:
        if not os.path.isfile(path):
            raise ScaffeError(f"{path}: no such file")
        try:
            model = self.onnx.load(path)
            self.onnx.checker.check_model(path)
            return model
        except Exception as error:  # protobuf's, the checker's, of external files
            text = str(error).strip().splitlines() or [type(error).__name__]
            raise ScaffeError(f"{path}: no valid ONNX model: {text[0]}") from None

    def _shape(self, info: Any, batch: int) -> list[int]:
        """Return an input's shape; only the batch may be open."""
        if not info.type.tensor_type.HasField("shape"):
            raise ScaffeError(f"{self.where}: input '{info.name}' says no shape: give --shape {info.name}=N,C,H,W")
        dims = info.type.tensor_type.shape.dim
        shape = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in dims]
        if shape and not shape[0]:
            shape[0] = batch
        if not all(shape):
            known = ",".join(str(size or "?") for size in shape)
            raise ScaffeError(f"{self.where}: input '{info.name}' leaves sizes open: give --shape {info.name}={known}")
        return shape

    def _read(self, node: Any) -> None:
        """Fold a node of constants, or add its layers."""
        inputs = [self._value(node, name) for name in node.input]
        self.layers.node = node.name or next(filter(None, node.output), node.op_type)
        try:
            if node.op_type in ("Shape", "Size") and isinstance(inputs[0], str):
                found: Sequence[Value] = [self._of_shape(node, self.layers.shape(inputs[0]))]
            elif node.op_type == "Constant" or (inputs and not any(isinstance(one, str) for one in inputs)):
                found = self._folded(node, inputs)
            else:
                results = self._reader(node)(self.layers, self._op(node, inputs))
                found = [results] if isinstance(results, str) else results
        except ScaffeError as error:
            raise ScaffeError(f"{self.where}: node '{self.layers.node}' ({node.op_type}): {error}") from None
        except (LookupError, TypeError, ValueError) as error:  # of numbers that do not fit, which no checker looks at
            what = f"node '{self.layers.node}' ({node.op_type})"
            raise ScaffeError(f"{self.where}: {what}: its inputs or attributes do not fit: {error}") from None
        self.values.update(zip(node.output, found, strict=False))

    def _value(self, node: Any, name: str) -> Value | None:
        if not name:
            return None
        if name not in self.values:
            raise ScaffeError(f"{self.where}: node '{node.name}' ({node.op_type}): nothing makes its input '{name}'")
        return self.values[name]

    def _reader(self, node: Any) -> Any:
        if node.op_type not in readers() or node.domain not in ("", "ai.onnx"):
            raise Unreadable(f"no layer does this op{near(node.op_type, readers(), 'ops that can be read')}")
        return readers()[node.op_type]

    def _op(self, node: Any, inputs: Sequence[Value | None]) -> Op:
        attributes = {one.name: self.onnx.helper.get_attribute_value(one) for one in node.attribute}
        return Op(node.op_type, inputs, attributes, [name in self._used for name in node.output], self.opset)

    def _of_shape(self, node: Any, shape: Sequence[int]) -> np.ndarray:
        attributes = {one.name: one.i for one in node.attribute}
        part = shape[attributes.get("start", 0) : attributes.get("end", len(shape))]
        return np.array(part if node.op_type == "Shape" else np.prod(shape), np.int64)

    def _folded(self, node: Any, inputs: Sequence[Value | None]) -> list[np.ndarray]:
        """Return what ONNX's reference makes of a node of constants."""
        from onnx.reference import ReferenceEvaluator

        if node.op_type in RANDOM:
            raise Unreadable("it draws random values, where a layer needs constants")
        helper = self.onnx.helper
        given = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
        infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                 for name, value in given.items() if isinstance(value, np.ndarray)]  # fmt: skip
        outputs = [self.onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "constant", infos, outputs)
        model = helper.make_model(graph, opset_imports=self.model.opset_import)
        try:
            found = iter(ReferenceEvaluator(model).run(None, given))
        except Exception as error:  # of any op's own code
            raise Unreadable(f"its constant can't be computed: {error}") from None
        return [np.asarray(next(found)) if name else np.zeros(0) for name in node.output]

    def _name_outputs(self, outputs: Sequence[str]) -> None:
        """Give blobs the names of the model's values; an output that is none of a layer's own gets one."""
        new: dict[str, str] = {}
        inputs = {layer.top[0] for layer in self.layers.net.layer if layer.type == "Input"}
        for name in outputs:
            value = self.values[name]
            self.layers.node = name
            blob = value if isinstance(value, str) else self.layers.parameter(value)
            if blob in new or blob in inputs:
                blob = self.layers.affine(blob)
            new[blob] = name
        for name, value in self.values.items():
            if isinstance(value, str) and name not in new.values() and value not in inputs:
                new.setdefault(value, name)
        taken = set(new.values())
        for blob in {top for layer in self.layers.net.layer for top in layer.top} - inputs - set(new):
            if blob in taken:  # of a node's first layer, where another has its result
                new[blob] = f"{blob}/first"
        for names in (names for layer in self.layers.net.layer for names in (layer.bottom, layer.top)):
            names[:] = [new.get(name, name) for name in names]

    @property
    def param(self) -> NetParameter:
        """The deploy net."""
        return self.layers.net

    def net(self, compute: Compute = Compute(engine=REFERENCE)) -> Net:  # noqa: B008  frozen
        """Return the net with its parameters' values."""
        net = Net(self.param, TEST, compute=compute)
        for name, weights in self.layers.weights.items():
            for blob, values in zip(net.params[name], weights, strict=True):
                blob.data[...] = values
        return net

    def write(self, folder: str) -> None:
        """Write deploy.prototxt and weights.caffemodel into a folder."""
        net = self.net()
        make_folder(folder)
        text = COMMENT.format(os.path.basename(self.where)) + text_format.MessageToString(self.param)
        write_atomically(os.path.join(folder, DEPLOY), text.encode())
        net.save(os.path.join(folder, WEIGHTS))
