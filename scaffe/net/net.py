"""Net: the layers of a prototxt over their blobs, run whole or layer by layer."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

import scaffe.layers  # noqa: F401  registers the layers
from scaffe import defaults, engines
from scaffe.blob import Blob, Shape
from scaffe.blobs.held import Held, public
from scaffe.blobs.packed import PackedParameters, ParameterBlob
from scaffe.blobs.shared_forms import SharedForms
from scaffe.blobs.sharing import Sharing
from scaffe.compute import MOVED, Compute
from scaffe.context import TRAIN, Context
from scaffe.devices.choices import Work
from scaffe.devices.gpu import Gpu
from scaffe.engine import REFERENCE, Group
from scaffe.errors import CallError, LabelError, NetError, ShapeError, UnknownBlobError, UnknownLayerError
from scaffe.files import weights as weight_files
from scaffe.layers.base_data import BaseData
from scaffe.layers.layer import Layer, asks_for_plain_code, check_counts, check_types, create
from scaffe.monitor.log import log
from scaffe.near import near
from scaffe.net import batches, failures
from scaffe.net.arguments import Model, checked_model, checked_phase, own_context, positional, with_engine
from scaffe.net.callbacks import Callback, Callbacks
from scaffe.net.checks import check_batch_splits, check_names, log_without_effect
from scaffe.net.debug_info import DebugInfo, is_shown
from scaffe.net.graph import (
    AUTOMATIC,
    LayerNode,
    asked_state,
    filter_layers,
    followers,
    insert_splits,
    joins,
    labels,
    made_by,
    need_backward,
    outputs,
)
from scaffe.pictures import input_transform
from scaffe.proto import InputTransform, LayerParameter, NetParameter, Phase, numbers, strings
from scaffe.proto.files import read_net
from scaffe.setting import check_record, moved


class Net:
    """Build the net of a prototxt file or NetParameter for a phase.

    As in pycaffe: Net(network_file, phase, level, stages, weights), all but the file also by keyword, or
    Net(network_file, weights, phase). The level takes the place of the file's own, stages join those of the file.
    `model` is another name of `network_file`.
    `compute` says how the net computes, by default scaffe.defaults; `engine` alone replaces the engine of these
    defaults. `gpu` is the GPU that devices.gpu.choose returned, None for the CPU. A `context` has its own `compute`,
    and says the rest of what layers know of a run.
    Python layers run code that the prototxt names: only with `allow_python_layers`, or a context that allows them.
    `debug_info`, at first the net's field, says whether Caffe's lines about the blobs are logged.
    `blobs` and `params` map names to blobs and lists of blobs; `packed` holds all parameters in one buffer.
    Raise NetError, ShapeError or PrototxtError where the net can't be built, CallError for arguments that it lacks.
    """

    @moved(MOVED)
    def __init__(
        self,
        network_file: Model | None = None,
        *args: Any,
        phase: int | None = None,
        level: int | None = None,
        stages: Sequence[str] | None = None,
        weights: str | os.PathLike[str] | None = None,
        model: Model | None = None,
        compute: Compute | None = None,
        engine: str | None = None,
        allow_python_layers: bool = False,
        gpu: Gpu | None = None,
        context: Context | None = None,
    ):
        if compute is not None:
            check_record("compute", compute, Compute)
        if engine is not None:
            compute, gpu = with_engine(engine, compute or context, gpu)
        asked: dict[str, Any] = {"phase": phase, "level": level, "stages": stages, "weights": weights}
        asked |= positional(args, asked)
        given = context
        if given is None:
            compute, gpu = defaults.chosen(compute, gpu)
            given = own_context(checked_phase(asked["phase"]), compute, allow_python_layers)
        self.trained: list[InputTransform] = []  # how images were prepared for the weights, as their file says
        self._open(checked_model(network_file, model), given, gpu, asked["level"], asked["stages"] or ())
        self.engine.adopt(self)
        if asked["weights"]:
            self.copy_from(asked["weights"])
        if context is None:
            self.context.choices.time([self])

    # What a net is built of.

    def _open(self, model: Model, context: Context, gpu: Gpu | None, level: int | None, stages: Sequence[str]) -> None:
        """Build the layers that are wanted. The context gets an engine of its own."""
        self.context = context
        self.engine = self.context.engine = engines.create(self.context.compute, gpu)
        if context.forms is None and context.compute.numbers == "bf16":
            context.forms = SharedForms(private=True)
        param = model if isinstance(model, NetParameter) else read_net(model)
        numbers.check(param, NetError)
        strings.check(param, NetError)
        kept = filter_layers(param, asked_state(param, self.context.phase, level, stages))
        if not isinstance(model, NetParameter):
            check_types(kept.layer, model)
        self.param = insert_splits(kept, param)
        self.keep_diffs = True  # of blobs; without, an engine's gradients take turns with less memory
        self.keep_data = True  # of blobs in the test phase; without, values on a GPU take turns too
        self.name = param.name
        self.held = Held()  # arrays of blobs in users' hands
        self.callbacks: dict[str, Callbacks] = {}  # by the method that they are called around
        self._build()
        self.debug_info = self.param.debug_info
        self.debug_lines = DebugInfo(self)
        self.sharing = Sharing(self.name, self.params, self.packed, self.held, self.engine)

    def _build(self) -> None:
        self.blobs: OrderedDict[str, Blob] = OrderedDict()
        self.layers: list[Layer] = []
        self.bottoms: list[list[Blob]] = []
        self.tops: list[list[Blob]] = []
        self._shapes: list[list[tuple[int, ...]]] = []
        self.parameters: list[ParameterBlob] = []
        for param, label in zip(self.param.layer, labels(self.param.layer), strict=True):
            if self.param.engine and not param.engine:
                param.engine = self.param.engine
            self._add_layer(param, label)
        log_without_effect(self.param.layer, self.engine.name)
        for i, j in followers(self.param.layer).items():
            self.layers[i].follower, self.layers[i].follower_is_next = self.layers[j], j == i + 1
        for i, (j, k) in joins(self.param.layer).items():
            self.layers[i].joined = self.layers[j], k
        self.nodes = [self._node(i) for i in range(len(self.layers))]
        need_backward(self.nodes, self.param.force_backward)
        check_names(self.layers)
        check_batch_splits(self.context, self.layers, self.bottoms)
        self.params = OrderedDict((layer.name, layer.blobs) for layer in self.layers if layer.blobs)
        self.packed = PackedParameters(self.parameters, self.engine.allocate)
        self.packed.forms = self.context.forms if self.engine.in_host_memory else None  # on a GPU each pass makes them
        if any(parameter.sharers for parameter in self.parameters):  # of which one's array does not show another's use
            self.packed.expose()
        self.outputs = outputs(self.nodes)
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

    def _add_layer(self, param: LayerParameter, label: str) -> None:
        param.MergeFrom(LayerParameter(phase=Phase.Name(self.context.phase)))
        layer = create(param, self.context)
        layer.label = label
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
            raise NetError(
                f"layer '{param.name}': another layer already produces its top '{name}'; give it another name"
            )
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

    def _weigh_losses(self) -> None:
        """Note the tops that make up the loss and let their diffs hold the weights."""
        self.losses: list[tuple[int, int, float]] = []
        for i, layer in enumerate(self.layers):
            for j, top in enumerate(self.tops[i]):
                if weight := layer.loss_weight(j):
                    self.losses.append((i, j, weight))
                    top.diff_array[...] = weight

    # Passes, as in pycaffe. The arrays that they return are the blobs' own, and show later values too.

    @np.errstate(all="ignore")
    @public
    def forward(
        self,
        /,
        blobs: Sequence[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **inputs: npt.ArrayLike,
    ) -> dict[str, np.ndarray]:
        """Run the layers from `start` to `end` after filling the `inputs`; return outputs, and `blobs`, by name.

        The outputs are the tops of `end` where it is given. An input has its blob's shape, or one that numpy repeats
        to it along axes other than 0. Raise ShapeError for another shape, UnknownBlobError and UnknownLayerError for
        other names.
        """
        for name, values in inputs.items():
            self._fill(name, values, self.inputs, "data")
        first, last = self._range(start, end)
        names = self._wanted(list(self.param.layer[last].top) if end else self.outputs, blobs)
        self._run_forward(first, last)
        return {name: self.blobs[name].data for name in names}

    @np.errstate(all="ignore")
    @public
    def backward(
        self,
        /,
        diffs: Sequence[str] | None = None,
        start: str | None = None,
        end: str | None = None,
        **tops: npt.ArrayLike,
    ) -> dict[str, np.ndarray]:
        """Run the layers backward from `start` to `end` after filling the `tops`' diffs; return inputs' diffs.

        With `end` these are the diffs of its bottoms; those of the blobs in `diffs` are returned too. Raise as
        `forward` does.
        """
        for name, values in tops.items():
            self._fill(name, values, self.outputs, "diff")
        last, first = self._range(end, start)
        names = self._wanted(list(self.param.layer[last].bottom) if end else self.inputs, diffs)
        self._run_backward(first, last)
        return {name: self.blobs[name].diff for name in names}

    def forward_all(self, /, blobs: Sequence[str] | None = None, **inputs: npt.ArrayLike) -> dict[str, np.ndarray]:
        """Run `forward` over inputs of any length, a batch at a time; return arrays with a row for each input's.

        Zeros fill the last batch; their rows are left out. An output without rows, such as a loss, has a number for
        each batch. The arrays are the caller's. Raise as `forward` does; CallError without inputs.
        """
        return batches.forward_all(self, blobs, inputs)

    def forward_backward_all(
        self, /, blobs: Sequence[str] | None = None, diffs: Sequence[str] | None = None, **given: npt.ArrayLike
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Run `forward` and `backward` over each batch; `given` has inputs, and gradients of outputs.

        Return outputs and `blobs`, and gradients of inputs and `diffs`, as `forward_all` does. Parameters' gradients
        are added up over all batches, the zeros that fill the last included.
        """
        return batches.forward_backward_all(self, blobs, diffs, given)

    def _batch(self, blobs: Mapping[str, npt.ArrayLike]) -> Iterator[dict[str, np.ndarray]]:
        return batches.batches(self, blobs)

    @np.errstate(all="ignore")
    @public
    def _forward(self, start: int, end: int) -> float:
        """Run the layers with the numbers `start` to `end`; return their part of the loss."""
        self._check_numbers(start, end)
        self._run_forward(start, end)
        return sum(weight * float(self.tops[i][j].array.sum()) for i, j, weight in self.losses if start <= i <= end)

    @np.errstate(all="ignore")
    @public
    def _backward(self, start: int, end: int) -> None:
        """Run the layers with the numbers `start` down to `end` backward."""
        self._check_numbers(end, start)
        self._run_backward(start, end)

    def _run_forward(self, first: int, last: int) -> None:
        self.keep_data = True
        for i in range(first, last + 1):
            self.forward_layer(i)
        self._raise_faults()
        if first == 0:
            self.context.batch_number += 1

    def _run_backward(self, first: int, last: int) -> None:
        for i in range(first, last - 1, -1):
            self.backward_layer(i)

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Make the first layer, a MemoryData, take its batches from these arrays; on several ranks each gives all.

        `data` is N x C x H x W, `labels` N or N x 1 x 1 x 1, with N a multiple of the layer's batch_size. Arrays of
        float32 in C order are not copied. Raise ShapeError for other shapes.
        """
        self.layers[0].set_input_arrays(data, labels)

    _set_input_arrays = set_input_arrays

    @public
    def reshape(self) -> None:
        """Give all blobs the shapes that follow from the inputs'."""
        for i, bottom in enumerate(self.bottoms):
            self._shapes[i] = [blob.shape for blob in bottom]
            if bottom:
                self._reshape_layer(i)

    # Parameters, as in pycaffe.

    @public
    def copy_from(self, path: str | os.PathLike[str]) -> None:
        """Take the parameters of the layers that a .caffemodel has by the same names."""
        weight_files.load(self, path)

    @public
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the net with its parameters as a .caffemodel, or as HDF5 if `path` ends with .h5."""
        weight_files.save(self, path)

    @public
    def save_hdf5(self, path: str | os.PathLike[str]) -> None:
        """Write the parameters as HDF5, in Caffe's layout. Raise SnapshotError without h5py."""
        weight_files.save_hdf5(self, path)

    @public
    def load_hdf5(self, path: str | os.PathLike[str]) -> None:
        """Take the parameters of the layers that an HDF5 file has by the same names. Raise as `copy_from` does."""
        weight_files.load_hdf5(self, path)

    def own_transforms(self, name: str) -> list[InputTransform]:
        """Return how its data layers prepare images; `name` is the net's in a file."""
        found = (layer.input_transform(name) for layer in self.data_layers())
        return [one for one in found if one is not None]

    @property
    def transforms(self) -> list[InputTransform]:
        """What a file of its weights says of the images: its own data layers' transforms, else those of its weights."""
        name = input_transform.TRAIN_NET if self.trains else input_transform.TEST_NET
        return self.own_transforms(name) or self.trained

    def note_trained(self, transforms: Sequence[InputTransform], path: str | os.PathLike[str]) -> None:
        """Keep the transforms of weights that were copied; warn where a test prepares images otherwise."""
        if self.trains:  # on from these weights, with transforms of its own
            return
        self.trained = list(transforms)
        for here in self.own_transforms(input_transform.TEST_NET)[:1]:
            if text := input_transform.warning(self.trained, here):
                log.warning("%s: layer '%s': %s", path, here.layer, text)

    @public
    def share_with(self, other: Net) -> None:
        """Make this net's parameters and `other`'s the same memory, for the layers that both have by name.

        They have the values of `other`, and are its memory, unless this net is a solver's, whose parameters stay where
        they are. Raise ShapeError where a layer's parameters differ in number or shape, and ScaffeError where both nets
        are solvers'; nothing has changed then.
        """
        if not isinstance(other, Net):
            raise CallError(f"share_with takes a net, got {other!r}")
        self.sharing.share_with(other.sharing)

    @public
    def move_parameters(self, allocate: Callable[[int], Any], gradients: bool = True) -> bool:
        """Move the parameters to memory of zeros that `allocate(count)` returns, also for the nets that share them.

        Without `gradients` these are zeros from now on. Return whether users still have arrays over the old memory.
        """
        return self.sharing.move(allocate, gradients)

    def _fill(self, name: str, given: npt.ArrayLike, known: Sequence[str], part: str) -> None:
        if name not in known:
            raise UnknownBlobError(
                f"'{name}' can't be given {part}; the net's blobs that can: {' '.join(known) or 'none'}"
            )
        blob = self.blobs[name]
        values = np.asarray(given)
        if values.shape != blob.shape and not _repeats(values.shape, blob.shape):
            raise ShapeError(f"blob '{name}' has shape {blob.shape}, got {values.shape}; reshape the blob first")
        getattr(blob, part)[...] = values

    def _wanted(self, names: list[str], more: Sequence[str] | None) -> list[str]:
        """Return the names of the blobs to return. Raise UnknownBlobError for one that the net does not have."""
        for name in more or ():
            if name not in self.blobs:
                raise UnknownBlobError(f"no blob '{name}'{near(name, self.blobs, 'blobs')}")
        return [*names, *(more or ())]

    def _range(self, start: str | None, end: str | None) -> tuple[int, int]:
        """Return the indices of the layers by those names, in the order of the net, by default of all.

        Raise UnknownLayerError for other names, and where `end` is before `start`.
        """
        names = self._layer_names
        for name in (start, end):
            if name is not None and name not in names:
                raise UnknownLayerError(f"no layer '{name}'{near(name, names, 'layers')}")
        first, last = names.index(start) if start else 0, names.index(end) if end else len(names) - 1
        if first > last:
            raise UnknownLayerError(
                f"layer '{names[first]}' is after '{names[last]}' in the net: exchange start and end"
            )
        return first, last

    def _check_numbers(self, first: int, last: int) -> None:
        if first < 0 or last >= len(self.layers):
            raise UnknownLayerError(f"layers {first} to {last}; the net has layers 0 to {len(self.layers) - 1}")

    # Passes layer by layer, as the training iteration calls them.

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
        if self.debug_info and is_shown():
            self.debug_lines.forward(i)

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
        if self.debug_info and is_shown():
            self.debug_lines.backward(i)
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

    def groups(self, starts: Iterable[int] = ()) -> list[Group]:
        """Return the layers in groups, each computed by one call of the engine; new groups begin at layers `starts`.

        With callbacks or debug info each layer is a group of its own.
        """
        return self.engine.groups(self, range(len(self.layers)) if self.callbacks or self.debug_info else starts)

    def suspects(self) -> list[str]:
        """Return the layers whose part of the loss of the last forward pass is not finite; if none is, all with one."""
        parts = {self.layers[i].label: float(self.tops[i][j].array.sum()) for i, j, _ in self.losses}
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

    @property
    def machine(self) -> str:
        """The device and libraries for which timed kernels are kept, "" where none are."""
        return self.engine.machine

    def works(self) -> Iterator[Mapping[str, Work]]:
        """Iterate over each layer's pieces of work by name."""
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

    # Callbacks, as in pycaffe. They run in this net's passes on this rank, also in those of a solver's step; without
    # any, a pass calls forward_layer and backward_layer themselves.

    def before_forward(self, callback: Callback) -> None:
        """Call `callback(i)` before layer i computes, in each forward pass, after the callbacks added earlier."""
        self._around("forward_layer").before.append(_callable(callback))

    def after_forward(self, callback: Callback) -> None:
        """Call `callback(i)` after layer i has computed; on a GPU its work may still be under way."""
        self._around("forward_layer").after.append(_callable(callback))

    def before_backward(self, callback: Callback) -> None:
        """Call `callback(i)` before layer i's part of each backward pass, also where it has no gradient to compute."""
        self._around("backward_layer").before.append(_callable(callback))

    def after_backward(self, callback: Callback) -> None:
        """Call `callback(i)` after layer i's part of each backward pass, before its gradients are sent."""
        self._around("backward_layer").after.append(_callable(callback))

    def take_callbacks(self, other: Net) -> None:
        """Call the callbacks of `other`, whose place this net takes."""
        for name, theirs in other.callbacks.items():
            mine = self._around(name)
            mine.before += theirs.before
            mine.after += theirs.after

    def _around(self, method: str) -> Callbacks:
        """Return the callbacks around forward_layer or backward_layer; the first replaces the method by them."""
        if method not in self.callbacks:
            self.callbacks[method] = Callbacks(self.held, getattr(self, method))
            setattr(self, method, self.callbacks[method])
        return self.callbacks[method]

    # Layers and blobs by name and by number, as in pycaffe: layers in the order of the prototxt, blobs in that in which
    # layers make them. The layers that Caffe inserts to split a blob count, and so do their tops. A loss without a top
    # has no number.

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

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """Each blob's weight in the loss, by name, 0 for those that are no part of it."""
        weights = {self.nodes[i].tops[j]: weight for i, j, weight in self.losses}
        return OrderedDict((name, weights.get(name, 0.0)) for name in self.blobs)

    @property
    def _layer_names(self) -> list[str]:
        return [layer.name for layer in self.layers]

    @property
    def _blob_names(self) -> list[str]:
        return list(self.blobs)

    @property
    def _blobs(self) -> list[Blob]:
        return list(self.blobs.values())

    @property
    def _blob_loss_weights(self) -> list[float]:
        return list(self.blob_loss_weights.values())

    @property
    def _inputs(self) -> list[int]:
        """The numbers of the input blobs."""
        return self._numbers(self.inputs)

    @property
    def _outputs(self) -> list[int]:
        """The numbers of the output blobs."""
        return self._numbers(self.outputs)

    def _top_ids(self, layer: int) -> list[int]:
        """Return the numbers of a layer's tops."""
        return self._numbers(self.param.layer[layer].top)

    def _bottom_ids(self, layer: int) -> list[int]:
        """Return the numbers of a layer's bottoms."""
        return self._numbers(self.param.layer[layer].bottom)

    def _numbers(self, names: Iterable[str]) -> list[int]:
        numbers = {name: number for number, name in enumerate(self.blobs)}
        return [numbers[name] for name in names]


def _repeats(given: Shape, shape: Shape) -> bool:
    """Return whether numpy repeats an array of one shape to the other, of as many rows."""
    try:
        return given[:1] == shape[:1] and np.broadcast_shapes(given, shape) == shape
    except ValueError:
        return False


def _callable(callback: Callback) -> Callback:
    if not callable(callback):
        raise CallError(f"a callback must be a function of a layer's index, got {callback!r}")
    return callback
