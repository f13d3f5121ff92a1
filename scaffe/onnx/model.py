"""An ONNX model of a net: its layers as ops, its parameters as constants."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scaffe.errors import ScaffeError, ShapeError
from scaffe.files.atomic import write_atomically
from scaffe.monitor.log import log
from scaffe.near import near
from scaffe.net.net import Net
from scaffe.onnx import out
from scaffe.onnx.graph import Graph
from scaffe.onnx.writers import writers
from scaffe.version import __version__

OPSET, IR = 17, 8  # of ONNX 1.12, which all runtimes of 2023 and later read
LARGEST = 2**31 - 1  # bytes of a protobuf message
BATCH = "N"


class Preparation(NamedTuple):
    """How pixels become the first input's values: (pixels - mean) scale, the mean of each channel (K) or of all."""

    mean: np.ndarray
    scale: float


def export(net: Net, path: str | os.PathLike[str], preparation: Preparation | None = None) -> None:
    """Write a net as an ONNX model, checked. Raise ScaffeError for a layer that has no form, and without onnx."""
    model = model_of(net, preparation)
    if model.ByteSize() > LARGEST:
        raise ScaffeError(f"{path}: {model.ByteSize():,} bytes, more than a file of ONNX can hold, {LARGEST:,}")
    write_atomically(path, model.SerializeToString())


def model_of(net: Net, preparation: Preparation | None = None) -> Any:
    """Return a net for the TEST phase as an onnx.ModelProto, which onnx.checker has passed.

    Inputs, outputs and blobs have the names of the net's. The batch, axis 0 of the inputs, may have any size unless a
    layer mixes samples; it is then the net's. With a `preparation` the first input takes pixels from 0 to 255. Raise
    ScaffeError for a layer that has no form in ONNX, and without onnx.
    """
    graph = Graph()
    _check_types(net)
    grown = growing(net)
    values = _write_layers(graph, net, preparation)
    _name_blobs(graph, net, values)
    helper, kind = graph.onnx.helper, graph.onnx.TensorProto.FLOAT

    def infos(names: Sequence[str]) -> list[Any]:
        return [helper.make_tensor_value_info(name, kind, _dims(net, name, grown)) for name in names]

    made = helper.make_graph(
        graph.nodes, net.name or "net", infos(net.inputs), infos(net.outputs), initializer=graph.initializers
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR,
        producer_name="scaffe", producer_version=__version__,
    )  # fmt: skip
    graph.onnx.checker.check_model(model)
    return model


def growing(net: Net) -> set[str]:
    """Return the blobs whose axis 0 grows with the inputs' batch; none, with a line in the log, if that is fixed."""
    sizes = {net.blobs[name].shape[:1] for name in net.inputs}
    mixing = ((layer, layer.mixes_samples(bottom)) for layer, bottom in zip(net.layers, net.bottoms, strict=True))
    why = next((f"layer '{layer.name}' ({layer.type}): {reason}" for layer, reason in mixing if reason), "")
    if not net.inputs or () in sizes or len(sizes) > 1:
        why = "the inputs have no common axis of samples"
    found = set() if why else _grown(net)
    if found:
        return found
    log.info("The model has the net's batch: %s", why or "the net takes no other")
    return set()


def _grown(net: Net) -> set[str]:
    """Return the blobs that have one more row where the inputs have."""
    before = {name: blob.shape for name, blob in net.blobs.items()}
    try:
        _give_rows(net, 1)
        return {name for name, blob in net.blobs.items() if blob.shape != before[name]}
    except ShapeError:
        return set()
    finally:
        _give_rows(net, -1)


def _give_rows(net: Net, more: int) -> None:
    for name in net.inputs:
        rows, *rest = net.blobs[name].shape
        net.blobs[name].reshape(rows + more, *rest)
    net.reshape()


def _dims(net: Net, name: str, grown: set[str]) -> list[int | str | None]:
    """Return the axes of an input or output, the batch's by name."""
    dims: list[int | str | None] = list(net.blobs[name].shape)
    if name in grown:
        dims[0] = BATCH if dims[0] == net.blobs[net.inputs[0]].shape[0] else None
    return dims


def _check_types(net: Net) -> None:
    """Raise ScaffeError for a layer that can't be written."""
    out.discover()
    for layer in net.layers:
        if layer.type in writers() or layer.type == "Input":
            continue
        if not layer.param.bottom:
            why = "a model's data are its inputs; give the deploy net, which has an Input layer in its place"
        elif layer.type.endswith("Loss") or layer.type == "Accuracy":
            why = "a model has no labels; give the deploy net, which ends with the scores or their Softmax"
        elif layer.type == "Python":
            why = "a model can't hold Python code"
        else:
            why = f"no ONNX form is known{near(layer.type, writers(), 'types that have one')}"
        raise ScaffeError(f"layer '{layer.name}' ({layer.type}): {why}")


def _write_layers(graph: Graph, net: Net, preparation: Preparation | None) -> dict[str, str]:
    """Add the ops of all layers; return the name of each blob's last value."""
    graph.reserve(list(net.blobs))
    values = {name: name for name in net.inputs}
    if preparation:
        values |= _prepared(graph, net, preparation)
    for layer, bottom, top in zip(net.layers, net.bottoms, net.tops, strict=True):
        if layer.type != "Input":
            graph.layer = layer.label
            names = [values[name] for name in layer.param.bottom]
            made = writers()[layer.type](graph, layer, bottom, top, names)
            values.update(zip(layer.param.top, made, strict=True))
    return values


def _prepared(graph: Graph, net: Net, preparation: Preparation) -> dict[str, str]:
    """Add the ops that make the first input's values of pixels; return the name of the result by that of the input."""
    name, channels = net.inputs[0], net.blobs[net.inputs[0]].shape[1:2]
    if preparation.mean.shape not in ((1,), channels):
        raise ShapeError(
            f"the mean has shape {preparation.mean.shape}, but input '{name}' {net.blobs[name].shape}; "
            "give one number, or one for each channel"
        )
    graph.layer, value = "transform", name
    if preparation.mean.any():
        value = graph.op("Sub", value, graph.constant(preparation.mean.reshape(-1, 1, 1), "mean"))
    return {name: graph.affine(value, preparation.scale)}


def _name_blobs(graph: Graph, net: Net, values: Mapping[str, str]) -> None:
    """Give each blob's last value the blob's name. The blobs of Splits that are inserted are none of the user's."""
    inserted = {top for layer in net.param.layer if layer.type == "Split" for top in layer.top} - set(net.outputs)
    made = {name for node in graph.nodes for name in node.output}
    wanted = [(blob, value) for blob, value in values.items() if blob not in inserted and blob not in net.inputs]
    new = dict((value, blob) for blob, value in reversed(wanted) if value in made)
    for names in (field for node in graph.nodes for field in (node.input, node.output)):
        names[:] = [new.get(name, name) for name in names]
    for blob, value in wanted:
        if new.get(value) != blob:
            graph.nodes.append(graph.onnx.helper.make_node("Identity", [new.get(value, value)], [blob]))


def counts(model: Any) -> Counter[str]:
    """Return how many ops of each kind a model has."""
    return Counter(node.op_type for node in model.graph.node)
