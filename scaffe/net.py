"""Net: the layers of a prototxt over their blobs, run whole or layer by layer."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

import scaffe.layers  # noqa: F401  registers the layers
from scaffe import defaults, failures
from scaffe.built_net import BuiltNet
from scaffe.choices import Choices, Work
from scaffe.compute import MOVED, Compute
from scaffe.context import TRAIN, Context
from scaffe.devices.gpu import Gpu
from scaffe.errors import LabelError, ScaffeError, ShapeError
from scaffe.files import weights as weight_files
from scaffe.held import public
from scaffe.layers.base_data import BaseData
from scaffe.layers.layer import Layer
from scaffe.proto import NetParameter
from scaffe.setting import check_record, moved


class Net(BuiltNet):
    """Build the net of a prototxt file or NetParameter for a phase.

    As in pycaffe: Net(file, phase), Net(file, weights, phase), and keywords `weights`, `level`, `stages`: the level
    takes the place of the file's own, stages join those of the file.
    `compute` says how the net computes, by default scaffe.defaults, and `gpu` is the GPU that devices.gpu.choose
    returned, None for the CPU. A `context` has its own `compute`, and says the rest of what layers know of a run.
    Python layers run code that the prototxt names: only with `allow_python_layers`, or a context that allows them.
    `blobs` and `params` map names to blobs and lists of blobs; `packed` holds all parameters in one buffer.
    Raise NetError, ShapeError or PrototxtError where the net can't be built.
    """

    @moved(MOVED)
    def __init__(
        self,
        model: str | os.PathLike[str] | NetParameter,
        *args: str | int,
        phase: int | None = None,
        weights: str | None = None,
        level: int | None = None,
        stages: Sequence[str] = (),
        compute: Compute | None = None,
        allow_python_layers: bool = False,
        gpu: Gpu | None = None,
        context: Context | None = None,
    ):
        if compute is not None:
            check_record("compute", compute, Compute)
        phase, weights = _positional(args, context.phase if context else phase, weights)
        given = context
        if given is None:
            compute, gpu = defaults.chosen(compute, gpu)
            given = _own_context(phase, compute, allow_python_layers)
        super().__init__(model, given, gpu, level, stages)
        self.engine.adopt(self)
        if weights:
            self.copy_from(weights)
        if context is None:
            self.context.choices.time([self])

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

    # pycaffe's interface.

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
    def copy_from(self, path: str | os.PathLike[str]) -> None:
        """Take the parameters of the layers that a .caffemodel has by the same names."""
        weight_files.load(self, path)

    @public
    def save(self, path: str | os.PathLike[str]) -> None:
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

    def _fill(self, name: str, given: npt.ArrayLike, known: Sequence[str], part: str) -> None:
        if name not in known:
            raise ScaffeError(f"'{name}' can't be given {part}; the net's blobs that can: {' '.join(known) or 'none'}")
        blob = self.blobs[name]
        values = np.asarray(given)
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


def _own_context(phase: int, compute: Compute, allow_python_layers: bool) -> Context:
    """Return the context of a net that is not given one, with the default seed."""
    return Context(
        phase,
        defaults.get_defaults().seed or 0,
        compute=replace(compute, allow_python_layers=compute.allow_python_layers or allow_python_layers),
        choices=Choices(compute.plan, compute.plan_seconds),
    )


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
