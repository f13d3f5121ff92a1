"""Net: the layers of a prototxt over their blobs, run whole or layer by layer."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

import scaffe.layers  # noqa: F401  registers the layers
from scaffe import engines, failures
from scaffe.blob import Blob
from scaffe.choices import Choices
from scaffe.compute import DEFAULT, Compute, check_given
from scaffe.context import TRAIN, Context
from scaffe.devices.gpu import Gpu
from scaffe.engine import REFERENCE
from scaffe.errors import LabelError, NetError, ScaffeError, ShapeError
from scaffe.files import weights as weight_files
from scaffe.graph import LayerNode, filter_layers, followers, insert_splits, made_by, need_backward
from scaffe.held import Held, public
from scaffe.layers.base_data import BaseData
from scaffe.layers.layer import Layer, asks_for_plain_code, check_counts, create
from scaffe.monitor.log import log
from scaffe.packed import PackedParameters, ParameterBlob
from scaffe.proto import LayerParameter, NetParameter, NetState, Phase, numbers, strings
from scaffe.proto.files import read_net
from scaffe.sharing import Sharing

AUTOMATIC = "(automatic)"  # Caffe's name of a top that the prototxt leaves out


class Net:
    """Build the net of a prototxt file or NetParameter for a phase.

    As in pycaffe: Net(file, phase), Net(file, weights, phase), and keywords `weights`, `level`, `stages`: the level
    takes the place of the file's own, stages join those of the file.
    `compute` says how the net computes, and `gpu` is the GPU that devices.gpu.choose returned, None for the CPU; a
    `context` has its own `compute`, and says the rest of what layers know of a run.
    Python layers run code that the prototxt names: only with `allow_python_layers`, or a context that allows them.
    `blobs` and `params` map names to blobs and lists of blobs; `packed` holds all parameters in one buffer.
    Raise NetError, ShapeError or PrototxtError where the net can't be built.
    """

    def __init__(
        self,
        model: str | os.PathLike | NetParameter,
        *args: str | int,
        phase: int | None = None,
        weights: str | None = None,
        level: int | None = None,
        stages: Sequence[str] = (),
        compute: Compute = DEFAULT,
        allow_python_layers: bool = False,
        gpu: Gpu | None = None,
        context: Context | None = None,
        **old: object,
    ):
        check_given("Net", compute, old)
        phase, weights = _positional(args, context.phase if context else phase, weights)
        self.context = context or Context(
            phase,
            compute=replace(compute, allow_python_layers=compute.allow_python_layers or allow_python_layers),
            choices=Choices(compute.plan),
        )
        self.engine = self.context.engine = engines.create(self.context.compute, gpu)
        param = model if isinstance(model, NetParameter) else read_net(model)
        numbers.check(param, NetError)
        strings.check(param, NetError)
        self.param = insert_splits(filter_layers(param, _state(param, self.context.phase, level, stages)))
        self.keep_diffs = True  # of blobs; without, an engine's gradients take turns with less memory
        self.keep_data = True  # of blobs in the test phase; without, values on a GPU take turns too
        self.name = param.name
        self.held = Held()  # arrays of blobs in users' hands
        self._build()
        self.sharing = Sharing(self.name, self.params, self.packed, self.held, self.engine)
        self.engine.adopt(self)
        if weights:
            self.copy_from(weights)
        if context is None:
            self.context.choices.time([self])

    def _build(self) -> None:
        self.blobs: OrderedDict[str, Blob] = OrderedDict()
        self.layers: list[Layer] = []
        self.bottoms: list[list[Blob]] = []
        self.tops: list[list[Blob]] = []
        self._shapes: list[list[tuple[int, ...]]] = []
        self.parameters: list[ParameterBlob] = []
        for param in self.param.layer:
            self._add_layer(param)
        for i, j in followers(self.param.layer).items():
            self.layers[i].follower = self.layers[j]
        self.nodes = [self._node(i) for i in range(len(self.layers))]
        need_backward(self.nodes, self.param.force_backward)
        self._check_nameless()
        self._check_batch_splits()
        self.params = OrderedDict((layer.name, layer.blobs) for layer in self.layers if layer.blobs)
        self.packed = PackedParameters(self.parameters, self.engine.allocate)
        self.outputs = _outputs(self.nodes)
        self.inputs = [top for layer in self.param.layer if layer.type == "Input" for top in layer.top]
        self._weigh_losses()
        self._announce_labels()

    def _announce_labels(self) -> None:
        """Give data layers the classes of the layers that take their tops for labels."""
        for i, layer in enumerate(self.layers):
            if taken := layer.labels_taken():
                k, top = made_by(self.param.layer, i, 1)
                if isinstance(maker := self.layers[k], BaseData):
                    maker.accept(top, *taken)

    def _add_layer(self, param: LayerParameter) -> None:
        param.MergeFrom(LayerParameter(phase=Phase.Name(self.context.phase)))
        layer = create(param, self.context)
        if self.engine.name != REFERENCE and asks_for_plain_code(param):
            log.info("layer '%s' (%s) computes in numpy: it says engine: CAFFE", layer.name, layer.type)
        bottom = [self.blobs[name] for name in param.bottom]
        top = [self._top(param, name) for name in param.top]
        if layer.makes_top and not top:
            top.append(Blob((), self.engine.xp))
        check_counts(layer, bottom, top)
        layer.setup(bottom, top)
        layer.reshape(bottom, top)
        for blob in top:
            layer.check_size(blob.shape, "a top")
        self.layers.append(layer)
        self.bottoms.append(bottom)
        self.tops.append(top)
        self._shapes.append([blob.shape for blob in bottom])
        self._add_parameters(layer)

    def _top(self, param: LayerParameter, name: str) -> Blob:
        if name in self.blobs and name not in param.bottom:
            raise NetError(f"layer '{param.name}': another layer already produces its top '{name}'")
        blob = self.blobs.setdefault(name, Blob((), self.engine.xp))
        blob.held = self.held
        return blob

    def _add_parameters(self, layer: Layer) -> None:
        specs = layer.param.param
        if len(specs) > len(layer.blobs):
            raise layer.error(f"{len(specs)} param fields for {len(layer.blobs)} parameter blob(s)")
        for index, blob in enumerate(layer.blobs):
            blob.held = self.held
            spec = specs[index] if index < len(specs) else None
            parameter = ParameterBlob.from_spec(layer.name, index, blob, spec, index in layer.statistics)
            owner = parameter.join(self.parameters)
            layer.param_propagate_down.append(owner.rate != 0 or self.param.force_backward)

    def _node(self, i: int) -> LayerNode:
        layer, param = self.layers[i], self.param.layer[i]
        if param.propagate_down and len(param.propagate_down) != len(param.bottom):
            raise layer.error(f"{len(param.propagate_down)} propagate_down fields for {len(param.bottom)} bottoms")
        return LayerNode(
            bottoms=param.bottom,
            tops=list(param.top) or [AUTOMATIC] * len(self.tops[i]),
            learns=any(layer.param_propagate_down),
            is_loss=[layer.loss_weight(j) != 0 for j in range(len(self.tops[i]))],
            propagate_down=param.propagate_down,
            can_force=[layer.allows_force_backward(j) for j in range(len(param.bottom))],
        )

    def _check_nameless(self) -> None:
        """Raise NetError where several layers without a name have something that files keep by a layer's name."""
        kept = [layer for layer in self.layers if not layer.name and (layer.blobs or isinstance(layer, BaseData))]
        if len(kept) > 1:
            types = ", ".join(layer.type for layer in kept)
            raise NetError(f"{len(kept)} layers with parameters or records have no name ({types}); give each one")

    def _check_batch_splits(self) -> None:
        if self.context.size == 1 or self.context.scaling != "strong":
            return
        for layer, bottom in zip(self.layers, self.bottoms, strict=True):
            if reason := layer.mixes_samples(bottom):
                raise layer.error(
                    f"{reason}, so the batch can't be divided over {self.context.size} ranks; "
                    "give each rank the whole batch with --scal weak"
                )

    def _weigh_losses(self) -> None:
        """Note the tops that make up the loss and let their diffs hold the weights."""
        self.losses: list[tuple[int, int, float]] = []
        for i, layer in enumerate(self.layers):
            for j, top in enumerate(self.tops[i]):
                if weight := layer.loss_weight(j):
                    self.losses.append((i, j, weight))
                    top.diff_array[...] = weight

    # The steps of a pass, as the training iteration calls them.

    def feed_layer(self, i: int) -> None:
        """Make layer i take its next batch, as the data layers of all ranks do where the root reads."""
        self.layers[i].feed()

    @public
    def forward_layer(self, i: int) -> None:
        """Compute layer i's tops, reshaped first if its bottoms have new shapes, or it asks for that."""
        layer, bottom, top = self.layers[i], self.bottoms[i], self.tops[i]
        shapes = [blob.shape for blob in bottom]
        if i == 0:
            self._begin_pass()
        if shapes != self._shapes[i] or layer.reshapes_always:
            self._shapes[i] = shapes
            self._reshape_layer(i)
        try:
            layer.forward(bottom, top)
        except Exception as error:  # a device's errors have no base of their own
            raise self._located(error, i) from None

    def _begin_pass(self) -> None:
        try:
            self.engine.begin_pass()
        except MemoryError as error:
            raise self._located(error, failures.fullest(self.bottoms, self.tops)) from None

    def _located(self, error: Exception, i: int) -> Exception:
        """Return an error of layer i's pass with what the net knows of it."""
        if isinstance(error, LabelError):
            return error.located(self.origin(error.row))
        return failures.located(error, self.layers[i], self.bottoms[i], self.tops[i], self.engine)

    @public
    def backward_layer(self, i: int) -> None:
        """Compute the gradients of layer i's bottoms and add those of its parameters, if any are needed."""
        node = self.nodes[i]
        try:
            if node.backward:
                self.layers[i].backward(self.tops[i], node.down, self.bottoms[i])
        except Exception as error:  # a device's errors have no base of their own
            raise self._located(error, i) from None
        if not self.keep_diffs:
            self._release_diffs(i)

    def _release_diffs(self, i: int) -> None:
        """Give up the gradients of layer i's tops: it was the last that read them, unless they are its bottoms too.

        One that a user holds stays, in memory of its own.
        """
        for top in self.tops[i]:
            if any(top is bottom for bottom in self.bottoms[i]):
                continue
            if self.held.holds(top, "diff_array"):
                top.own("diff_array")
            else:
                top.diff_values.release()

    def loss(self) -> float:
        """Return the loss of the last forward pass; with several ranks, this rank's part of it."""
        self._raise_faults()
        return sum(weight * float(self.tops[i][j].array.sum()) for i, j, weight in self.losses)

    def suspects(self) -> list[str]:
        """Return the layers whose part of the loss of the last forward pass is not finite; if none is, all with one."""
        parts = {self.layers[i].name: float(self.tops[i][j].array.sum()) for i, j, _ in self.losses}
        return [name for name, part in parts.items() if not isfinite(part)] or list(parts)

    def _raise_faults(self) -> None:
        """Raise LabelError where the last forward pass met a label that is no class, unless it has raised that."""
        try:
            self.engine.raise_faults()
        except LabelError as error:
            raise error.located(self.origin(error.row)) from None

    def loss_weights(self) -> dict[str, float]:
        """Return the weights of the blobs that make up the loss."""
        return {self.nodes[i].tops[j]: weight for i, j, weight in self.losses}

    @public
    def clear_param_diffs(self) -> None:
        """Set all parameters' gradients to zero."""
        self.packed.clear_diffs()

    def _reshape_layer(self, i: int) -> None:
        self.engine.reshaped(self.layers[i])
        self.layers[i].reshape(self.bottoms[i], self.tops[i])
        for j, top in enumerate(self.tops[i]):
            if weight := self.layers[i].loss_weight(j):
                top.diff_array[...] = weight

    def origin(self, row: int) -> str:
        """Return the record that a row of the batch came from, "" where no layer knows."""
        return next(filter(None, (layer.origin(row) for layer in self.layers)), "")

    @property
    def trains(self) -> bool:
        """Whether the net's phase is TRAIN."""
        return self.context.phase == TRAIN

    @property
    def times_kernels(self) -> bool:
        """Whether its engine asks for kernels to be timed."""
        return self.engine.times_kernels

    def works(self) -> Iterator[Mapping[str, Callable[[], dict[str, float]]]]:
        """Iterate over each layer's pieces of work, by name, with what times the kernels for it."""
        for layer, node, bottom, top in zip(self.layers, self.nodes, self.bottoms, self.tops, strict=True):
            yield layer.works(bottom, top, any(node.down))

    def replan(self) -> None:
        """Make the layers choose their kernels anew, as the context's choices now say."""
        for layer in self.layers:
            layer.replan()
        self.engine.moved()

    def describe(self) -> Iterator[str]:
        """Iterate over a line per layer: its type, bottoms and tops with their shapes."""
        for i, node in enumerate(self.nodes):
            bottoms, tops = (
                ", ".join(f"{name} {blob.shape}" for name, blob in zip(names, blobs, strict=True))
                for names, blobs in ((node.bottoms, self.bottoms[i]), (node.tops, self.tops[i]))
            )
            yield f"{self.layers[i].name} ({self.layers[i].type}): {bottoms} -> {tops}".replace(":  ->", ": ->")

    def data_layers(self) -> Iterator[BaseData]:
        """Iterate over the layers that read records."""
        return (layer for layer in self.layers if isinstance(layer, BaseData))

    def close(self) -> None:
        """End the data layers' reader threads, and complete the files that layers write."""
        for layer in self.layers:
            layer.close()

    # pycaffe's interface.

    @public
    @np.errstate(all="ignore")
    def forward(self, blobs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **inputs):
        """Run the layers from `start` to `end` after filling the `inputs`; return outputs, and `blobs`, by name."""
        for name, values in inputs.items():
            self._fill(name, values, self.inputs, "data")
        self.keep_data = True
        first, last = self._range(start, end)
        for i in range(first, last + 1):
            self.forward_layer(i)
        self._raise_faults()
        if first == 0:
            self.context.batch_number += 1
        names = list(self.param.layer[last].top) if end else self.outputs
        return {name: self.blobs[name].data for name in [*names, *(blobs or [])]}

    @public
    @np.errstate(all="ignore")
    def backward(self, diffs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **tops):
        """Run the layers backward from `start` to `end` after filling the `tops`' diffs; return inputs' diffs."""
        for name, values in tops.items():
            self._fill(name, values, self.outputs, "diff")
        last, first = self._range(end, start)
        for i in range(first, last - 1, -1):
            self.backward_layer(i)
        names = list(self.param.layer[last].bottom) if end else self.inputs
        return {name: self.blobs[name].diff for name in [*names, *(diffs or [])]}

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Make the first layer, a MemoryData, take its batches from these arrays; on several ranks each gives all."""
        self.layers[0].set_input_arrays(data, labels)

    @public
    def reshape(self) -> None:
        """Give all blobs the shapes that follow from the inputs'."""
        for i, bottom in enumerate(self.bottoms):
            self._shapes[i] = [blob.shape for blob in bottom]
            if bottom:
                self._reshape_layer(i)

    @property
    def layer_dict(self) -> OrderedDict[str, Layer]:
        """The layers by name."""
        return OrderedDict((layer.name, layer) for layer in self.layers)

    @property
    def top_names(self) -> OrderedDict[str, list[str]]:
        """Names of each layer's tops, by layer name."""
        return OrderedDict((param.name, list(param.top)) for param in self.param.layer)

    @property
    def bottom_names(self) -> OrderedDict[str, list[str]]:
        """Names of each layer's bottoms, by layer name."""
        return OrderedDict((param.name, list(param.bottom)) for param in self.param.layer)

    @public
    def copy_from(self, path: str | os.PathLike) -> None:
        """Take the parameters of the layers that a .caffemodel has by the same names."""
        weight_files.load(self, path)

    @public
    def save(self, path: str | os.PathLike) -> None:
        """Write the net with its parameters as a .caffemodel."""
        weight_files.save(self, path)

    @public
    def share_with(self, other: Net) -> None:
        """Make this net's parameters and `other`'s the same memory, for the layers that both have by name.

        They have the values of `other`, and are its memory, unless this net is a solver's, whose parameters stay where
        they are. Raise ShapeError where a layer's parameters differ in number or shape, and ScaffeError where both nets
        are solvers'; nothing has changed then.
        """
        self.sharing.share_with(other.sharing)

    @public
    def move_parameters(self, allocate: Callable[[int], Any]) -> bool:
        """Move the parameters to memory that `allocate(count)` returns, also for the nets that share them.

        Return whether users still have arrays over the old memory.
        """
        return self.sharing.move(allocate)

    def _fill(self, name: str, values, known: Sequence[str], part: str) -> None:
        if name not in known:
            raise ScaffeError(f"'{name}' can't be given {part}; the net's blobs that can: {' '.join(known) or 'none'}")
        blob = self.blobs[name]
        values = np.asarray(values)
        if values.shape != blob.shape:
            raise ShapeError(f"blob '{name}' has shape {blob.shape}, got {values.shape}; reshape the blob first")
        getattr(blob, part)[...] = values

    def _range(self, start: str | None, end: str | None) -> tuple[int, int]:
        """Return the indices of the layers by those names, the first and the last by default."""
        names = [layer.name for layer in self.layers]
        for name in (start, end):
            if name is not None and name not in names:
                raise ScaffeError(f"no layer '{name}'; layers: {' '.join(names)}")
        return names.index(start) if start else 0, names.index(end) if end else len(names) - 1


def _state(param: NetParameter, phase: int, level: int | None, stages: Sequence[str]) -> NetState:
    """Return which layers are wanted: those of the phase, and of level and stages that are given, or the net's own."""
    if isinstance(stages, str):
        raise NetError(f"stages must be a list of names, got '{stages}'")
    state = NetState()
    state.CopyFrom(param.state)
    state.phase = phase  # type: ignore[assignment]
    if level is not None:
        state.level = level
    state.stage.extend(stages or ())
    return state


def _outputs(nodes: Sequence[LayerNode]) -> list[str]:
    """Return the blobs that nobody uses after they are made, in Caffe's order: by name."""
    unused: set[str] = set()
    for node in nodes:
        unused = (unused - set(node.bottoms)) | set(node.tops)
    return sorted(unused - {AUTOMATIC})


def _positional(args: Sequence[str | int], phase: int | None, weights: str | None) -> tuple[int, str | None]:
    """Sort pycaffe's positional arguments: a number is the phase, a path the weights."""
    for arg in args:
        if isinstance(arg, int):
            phase = arg
        else:
            weights = os.fspath(arg)
    if phase is None:
        raise ScaffeError("a net needs a phase: scaffe.TRAIN or scaffe.TEST")
    return phase, weights
