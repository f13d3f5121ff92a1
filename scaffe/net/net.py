"""Net: the layers of a prototxt over their blobs, run whole or layer by layer."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

import scaffe.layers  # noqa: F401  registers the layers
from scaffe.blobs.held import Held, public
from scaffe.blobs.packed import PackedParameters
from scaffe.blobs.shared_forms import SharedForms
from scaffe.blobs.sharing import Sharing
from scaffe.compute import MOVED, Compute
from scaffe.context import TRAIN, Context
from scaffe.engine import Engine, Group
from scaffe.errors import CallError, LabelError
from scaffe.files import weights as weight_files
from scaffe.layers.base_data import BaseData
from scaffe.monitor.log import log
from scaffe.net import batches, failures, numbering
from scaffe.net.arguments import Model, checked_model, context_and_engine, positional, wanted_layers
from scaffe.net.built import Built
from scaffe.net.callbacks import Callback, Callbacks
from scaffe.net.debug_info import DebugInfo, is_shown
from scaffe.net.names import check_numbers, fill, numbers_of, wanted
from scaffe.pictures import input_transform
from scaffe.proto import InputTransform
from scaffe.setting import moved

_shape = attrgetter("shape")


class Net:
    """Build the net of a prototxt file or NetParameter for a phase.

    As in pycaffe: Net(network_file, phase, level, stages, weights), all but the file also by keyword, or
    Net(network_file, weights, phase). The level takes the place of the file's own, stages join those of the file.
    `model` is `network_file`.
    `compute` says how the net computes, by default scaffe.defaults; an `engine`'s name alone replaces the engine of
    these defaults. Where the net computes on a device that a program has chosen, `engine` is what engines.create
    returned, which has its own `compute`. A `context` has that too, and says the rest of what layers know of a run.
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
        engine: str | Engine | None = None,
        allow_python_layers: bool = False,
        context: Context | None = None,
    ):
        asked: dict[str, Any] = {"phase": phase, "level": level, "stages": stages, "weights": weights}
        asked |= positional(args, asked)
        found = checked_model(network_file, model)
        self.context, self.engine = context_and_engine(context, engine, compute, asked["phase"], allow_python_layers)
        self.context.engine = self.engine
        if self.context.forms is None and self.context.compute.numbers == "bf16":
            self.context.forms = SharedForms(private=True)
        self.param = wanted_layers(found, self.context.phase, asked["level"], asked["stages"] or ())
        self.trained: list[InputTransform] = []  # how images were prepared for the weights, as their file says
        self.keep_diffs = True  # of blobs; without, an engine's gradients take turns with less memory
        self.keep_data = True  # of blobs in the test phase; without, values on a GPU take turns too
        self.name = self.param.name
        self.held = Held()  # arrays of blobs in users' hands
        self.callbacks: dict[str, Callbacks] = {}  # by the method that they are called around
        built = Built(self.param, self.context, self.engine, self.held)
        self.blobs, self.layers, self.bottoms, self.tops = built.blobs, built.layers, built.bottoms, built.tops
        self.nodes, self.losses, self.parameters = built.nodes, built.losses, built.parameters
        self.inputs, self.outputs, self._shapes = built.inputs, built.outputs, built.shapes
        self._done = [  # by layer: tops whose gradients it is the last to read, since they are not its bottoms too
            [top for top in tops if all(top is not bottom for bottom in bottoms)]
            for tops, bottoms in zip(self.tops, self.bottoms, strict=True)
        ]
        self.params = OrderedDict((layer.name, layer.blobs) for layer in self.layers if layer.blobs)
        self.packed = PackedParameters(self.parameters, self.engine.allocate)
        self.packed.forms = self.context.forms if self.engine.in_host_memory else None  # on a GPU each pass makes them
        if any(parameter.sharers for parameter in self.parameters):  # of which one's array does not show another's use
            self.packed.expose()
        self.debug_info = self.param.debug_info
        self.debug_lines = DebugInfo(built)
        self.sharing = Sharing(self.name, self.params, self.packed, self.held, self.engine)
        self.engine.serves = f"net '{self.name}'"  # not before: where a net can't be built it serves the next try
        self.engine.adopt(self)
        if asked["weights"]:
            self.copy_from(asked["weights"])
        if context is None:
            self.context.choices.time([self])

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
            fill(self.blobs, name, values, self.inputs, "data")
        first, last = numbers_of(self._layer_names, start, end)
        names = wanted(self.blobs, list(self.param.layer[last].top) if end else self.outputs, blobs)
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
            fill(self.blobs, name, values, self.outputs, "diff")
        last, first = numbers_of(self._layer_names, end, start)
        names = wanted(self.blobs, list(self.param.layer[last].bottom) if end else self.inputs, diffs)
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
        check_numbers(start, end, len(self.layers))
        self._run_forward(start, end)
        return sum(weight * float(self.tops[i][j].array.sum()) for i, j, weight in self.losses if start <= i <= end)

    @np.errstate(all="ignore")
    @public
    def _backward(self, start: int, end: int) -> None:
        """Run the layers with the numbers `start` down to `end` backward."""
        check_numbers(end, start, len(self.layers))
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

    # Passes layer by layer, as the training iteration calls them.

    def feed_layer(self, i: int) -> None:
        """Make layer i take its next batch, as the data layers of all ranks do where the root reads."""
        self.layers[i].feed()

    @public
    def forward_layer(self, i: int) -> None:
        """Compute layer i's tops, reshaped first if its bottoms have new shapes, or it asks for that."""
        layer, bottom, top = self.layers[i], self.bottoms[i], self.tops[i]
        shapes = list(map(_shape, bottom))
        if i == 0:
            failures.begin_pass(self.layers, self.bottoms, self.tops, self.engine)
        if shapes != self._shapes[i] or layer.reshapes_always:
            self._shapes[i] = shapes
            self._reshape_layer(i)
        try:
            layer.forward(bottom, top)
        except Exception as error:  # a device's errors have no base of their own
            raise self._located(error, i) from None
        if self.debug_info and is_shown():
            self.debug_lines.forward(i)

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
            for top in self._done[i]:
                top.release_diff()

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

    def replan(self) -> None:
        """Make the layers choose their kernels anew, as the context's choices now say."""
        for layer in self.layers:
            layer.replan()
        self.engine.moved()

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

    # Layers and blobs by name and by number.

    describe = numbering.describe
    works = numbering.works
    loss_weights = numbering.loss_weights
    layer_dict = property(numbering.layer_dict)
    top_names = property(numbering.top_names)
    bottom_names = property(numbering.bottom_names)
    blob_loss_weights = property(numbering.blob_loss_weights)
    _layer_names = property(numbering.layer_names)
    _blob_names = property(numbering.blob_names)
    _blobs = property(numbering.blobs)
    _blob_loss_weights = property(numbering.weights)
    _inputs = property(numbering.inputs)
    _outputs = property(numbering.outputs)
    _top_ids = numbering.top_ids
    _bottom_ids = numbering.bottom_ids


def _callable(callback: Callback) -> Callback:
    if not callable(callback):
        raise CallError(f"a callback must be a function of a layer's index, got {callback!r}")
    return callback
