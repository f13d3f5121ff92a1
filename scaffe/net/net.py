"""Net: the layers of a prototxt over their blobs, run whole or layer by layer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

import scaffe.layers  # noqa: F401  registers the layers
from scaffe import defaults
from scaffe.blob import Shape
from scaffe.blobs.held import public
from scaffe.compute import MOVED, Compute
from scaffe.context import TEST, TRAIN, Context
from scaffe.devices.choices import Choices
from scaffe.devices.gpu import Gpu
from scaffe.errors import CallError, ShapeError, UnknownBlobError, UnknownLayerError
from scaffe.files import weights as weight_files
from scaffe.monitor.log import log
from scaffe.near import near
from scaffe.net import batches
from scaffe.net.indexed_net import IndexedNet
from scaffe.net.layer_passes import LayerPasses
from scaffe.pictures import input_transform
from scaffe.proto import InputTransform, NetParameter
from scaffe.setting import check_record, moved

Model = str | os.PathLike[str] | NetParameter


class Net(LayerPasses, IndexedNet):
    """Build the net of a prototxt file or NetParameter for a phase.

    As in pycaffe: Net(network_file, phase, level, stages, weights), all but the file also by keyword, or
    Net(network_file, weights, phase). The level takes the place of the file's own, stages join those of the file.
    `model` is another name of `network_file`.
    `compute` says how the net computes, by default scaffe.defaults; `engine` alone replaces the engine of these
    defaults. `gpu` is the GPU that devices.gpu.choose returned, None for the CPU. A `context` has its own `compute`,
    and says the rest of what layers know of a run.
    Python layers run code that the prototxt names: only with `allow_python_layers`, or a context that allows them.
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
            compute, gpu = _with_engine(engine, compute or context, gpu)
        asked: dict[str, Any] = {"phase": phase, "level": level, "stages": stages, "weights": weights}
        asked |= _positional(args, asked)
        given = context
        if given is None:
            compute, gpu = defaults.chosen(compute, gpu)
            given = _own_context(_checked_phase(asked["phase"]), compute, allow_python_layers)
        self.trained: list[InputTransform] = []  # how images were prepared for the weights, as their file says
        super().__init__(_checked_model(network_file, model), given, gpu, asked["level"], asked["stages"] or ())
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


def _own_context(phase: int, compute: Compute, allow_python_layers: bool) -> Context:
    """Return the context of a net that is not given one, with the default seed."""
    return Context(
        phase,
        defaults.get_defaults().seed or 0,
        compute=replace(compute, allow_python_layers=compute.allow_python_layers or allow_python_layers),
        choices=Choices(compute.plan, compute.plan_seconds),
    )


def _repeats(given: Shape, shape: Shape) -> bool:
    """Return whether numpy repeats an array of one shape to the other, of as many rows."""
    try:
        return given[:1] == shape[:1] and np.broadcast_shapes(given, shape) == shape
    except ValueError:
        return False


def _with_engine(engine: str, other: object, gpu: Gpu | None) -> tuple[Compute, Gpu | None]:
    """Return how a net computes by the defaults, but for its engine, and its GPU."""
    if other is not None:
        raise CallError(f"engine={engine!r} beside a compute or a context; write compute=Compute(engine={engine!r})")
    compute, gpu = defaults.chosen(None, gpu)
    return replace(compute, engine=engine), gpu


def _positional(args: Sequence[Any], named: Mapping[str, object]) -> dict[str, Any]:
    """Return positional arguments by name. Raise CallError for one too many, or one that is also in `named`."""
    paths = [isinstance(arg, (str, os.PathLike)) for arg in args[:2]]
    names = ["phase", "level", "stages", "weights"]
    if any(paths):  # Net(file, weights, phase), or the other way round
        names = ["weights", "phase"] if paths[0] else ["phase", "weights"]
    twice = [name for name in names[: len(args)] if named[name] is not None]
    if len(args) > len(names) or twice:
        again = "".join(f"; '{name}' twice" for name in twice)
        raise CallError(f"a net takes a file, {', '.join(names)}; got {len(args)} of these{again}")
    return dict(zip(names, args, strict=False))


def _checked_model(file: object, model: object) -> Model:
    found = model if file is None else file
    if isinstance(found, str) and "\n" in found:
        raise CallError("a net needs the path of a prototxt, got its text: write it to a file, or give a NetParameter")
    if not isinstance(found, (str, os.PathLike, NetParameter)):
        raise CallError(f"a net needs network_file, the path of a prototxt or a NetParameter, got {found!r}")
    return found


def _checked_phase(phase: object) -> int:
    if phase is None:
        raise CallError("a net needs a phase: scaffe.TRAIN or scaffe.TEST")
    if phase not in (TRAIN, TEST):
        raise CallError(f"phase must be scaffe.TRAIN ({TRAIN}) or scaffe.TEST ({TEST}), got {phase!r}")
    return TRAIN if phase == TRAIN else TEST
