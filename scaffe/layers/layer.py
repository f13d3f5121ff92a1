"""Layer: the base class of all layers, and the registry of layer types.

Net calls a layer's methods in this order: `setup` once; `reshape` before a forward pass whose bottoms have new
shapes; `forward` and `backward` any number of times.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from readers import Batch
from readers.waited import Waited
from scaffe.blob import Blob, Shape
from scaffe.blobs.fillers import fill
from scaffe.context import Context
from scaffe.devices.choices import Work
from scaffe.engine import REFERENCE
from scaffe.errors import NetError, ShapeError
from scaffe.near import near
from scaffe.proto import ConvolutionParameter, FillerParameter, LayerParameter, refusals

Blobs = Sequence[Blob]

ANY = (0, 10**6)
LARGEST = 2**46  # elements of a blob; no machine can address more


class Layer:
    """Compute tops from bottoms, and the bottoms' gradients from the tops' gradients.

    Subclasses implement `setup`, `reshape`, `forward` and `backward`, and set `bottoms` and `tops`, the least and
    the largest number of each. `self.blobs` holds the parameters. `backward` overwrites the `diff_array` of a bottom
    whose `propagate_down` is true, and adds to the `diff_array` of each parameter.
    """

    bottoms: tuple[int, int] = (1, 1)
    tops: tuple[int, int] = (1, 1)
    bottom_names = ""  # what the bottoms are, for the error about a wrong number of them
    summed_tops = 0  # number of leading tops that are this rank's part of a sum over the global batch
    makes_top = False  # whether a top that the prototxt omits is added, as for Caffe's losses
    in_place = False  # whether a top may be a bottom
    capturable = False  # whether a GPU graph can record a pass: the same launches each time, no work on the host
    takes_bf16 = False  # whether it reads and writes values and gradients in bfloat16, in a form of the CPU's engine
    views = False  # whether the tops are views of bottom 0
    reshapes_always = False  # whether the tops' shapes depend on the bottoms' values: `reshape` precedes each forward
    reads_ahead = False  # whether threads read its records ahead, into `batch`; then `waited` counts the waits for them
    batch: Batch | None = None
    waited: Waited | None = None
    unsaved: str = ""  # why a net built anew, with its parameters and position, would not go on as it does
    rounded_blobs: Sequence[int] = ()  # blobs of which each pass reads copies alone that are rounded to bfloat16
    statistics: tuple[int, ...] = ()  # blobs that are measured, not learned: without gradient, averaged over ranks

    def __init__(self, param: LayerParameter, context: Context):
        self.param, self.context = param, context
        self.name, self.type = param.name, param.type
        self.label = param.name  # unlike the name, no other layer of the net has it
        self.blobs: list[Blob] = []
        self.param_propagate_down: list[bool] = []
        self.follower: Layer | None = None  # the only layer that reads the only top, if it has no other bottom
        self.follower_is_next = False  # whether it comes right behind this layer
        self.joined: tuple[Layer, int] | None = None  # the reader of the only top, and which of its several bottoms
        self.xp = context.xp
        self._buffers: dict[str, Any] = {}

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        """Read the layer's fields and create its parameters. The bottoms already have their shapes."""

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        """Set the tops' shapes. Raise ShapeError if the bottoms' shapes do not fit the layer or each other."""
        raise NotImplementedError

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        """Compute the tops' `array`."""
        raise NotImplementedError

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute the bottoms' `diff_array` where `propagate_down` is true, and add to the parameters' `diff_array`."""
        raise NotImplementedError

    def begin_pass(self) -> None:
        """Give the device what changes from pass to pass; comes before a forward pass that may be a repetition."""

    def feed(self) -> None:
        """Take the next batch for the next forward pass, where `reads_ahead`; else there is none to take."""

    def origin(self, row: int) -> str:
        """Return what messages call the sample in a row of the current batch, "" where the layer has no name for it."""
        return ""

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Take batches from these arrays. Raise NetError: a MemoryData layer alone does."""
        raise self.error("the first layer must be a MemoryData layer for set_input_arrays")

    def close(self) -> None:
        """End the layer's threads and close its files. Files that it wrote are complete afterwards."""

    def loss_weight(self, top_index: int) -> float:
        """Return a top's weight in the net's loss, 0 if it is not part of the loss."""
        weights = self.param.loss_weight
        return weights[top_index] if top_index < len(weights) else 0.0

    def allows_force_backward(self, bottom_index: int) -> bool:
        """Return whether `force_backward` applies to this bottom."""
        return True

    def mixes_samples(self, bottom: Blobs) -> str:
        """Return why the batch on axis 0 cannot be divided over ranks, "" if it can."""
        return ""

    def labels_taken(self) -> tuple[int, int | None] | None:
        """Return the number of classes and the ignored label of bottom 1, None if bottom 1 holds no labels."""
        return None

    def add_blob(self, shape: Shape, filler: FillerParameter) -> Blob:
        """Create a parameter, append it to `blobs` and return it.

        The filler's random numbers depend on the seed, the layer's name and the blob's index only. Where the
        parameter gets its values later, it has no memory yet. Raise ShapeError for an impossible shape, or if there is
        not enough memory.
        """
        self.check_size(shape, "a parameter")
        blob = Blob(shape, self.xp)
        if self.name not in self.context.handed:
            self._fill(blob, filler)
        self.blobs.append(blob)
        return blob

    def _fill(self, blob: Blob, filler: FillerParameter) -> None:
        rng = self.context.generator("filler", self.name, len(self.blobs))
        try:
            values = blob.data
        except MemoryError:
            what = f"a parameter of shape {blob.shape}: {blob.count * 4:.3g} bytes"
            raise self.shape_error(f"no memory for {what}") from None
        fill(values, filler, rng, f"layer '{self.name}'")
        blob.data[...] = values

    def buffer(self, name: str, shape: Shape, dtype: Any) -> Any:
        """Return the layer's array of that name, zeros at first; a new shape or dtype allocates a new one."""
        array = self._buffers.get(name)
        if array is None or array.shape != shape or array.dtype != dtype:
            array = self._buffers[name] = self.xp.zeros(shape, dtype)
        return array

    def scratch(self, name: str, shape: Shape, dtype: Any) -> Any:
        """Return an array with any content; other layers may overwrite it once this layer's pass is over."""
        return self.context.engine.scratch(name, shape, dtype)

    @property
    def buffer_bytes(self) -> int:
        """Size of the layer's arrays, bytes."""
        return sum(array.nbytes for array in self._buffers.values())

    def kept_input(self, bottom: Blob, top: Blob) -> Any:
        """Return the bottom's values for `backward`: a copy if the layer works in place, else the bottom's array."""
        if top is not bottom:
            return bottom.array
        copy = self.buffer("kept input", bottom.shape, bottom.array.dtype)
        copy[...] = bottom.array
        return copy

    @property
    def works_in_place(self) -> bool:
        """Whether the tops are the bottoms."""
        return list(self.param.bottom) == list(self.param.top)

    @property
    def is_overwritten(self) -> bool:
        """Whether a following layer works in place, and so changes the top before the backward pass."""
        return self.follower is not None and self.follower.works_in_place

    def draw_uniform(self, shape: Shape) -> Any:
        """Return uniform float32 numbers in [0, 1), an array of `shape`, new ones for each batch.

        They depend on the seed, the layer, the global batch's number and the sample's index in it, so that any number
        of ranks draws the same numbers.
        """
        return self.xp.asarray(self.context.rows_uniform(self.draw_key(), *self.draw_rows(shape))).reshape(shape)

    def draw_key(self) -> tuple[str | int, ...]:
        """Return the key of the current batch's random numbers."""
        return self.type.lower(), self.label, self.context.batch_number

    def draw_rows(self, shape: Shape) -> tuple[int, int]:
        """Return the number of rows of random numbers for an array of `shape`, and the numbers in each row."""
        rows, count = self.context.local_rows, prod(shape)
        if not rows or count % rows:
            rows = shape[0]
        return rows, count // rows

    def check_size(self, shape: Shape, what: str) -> None:
        """Raise ShapeError if no blob can have this shape; `what` names the blob in the error."""
        if min(shape, default=0) < 0 or prod(shape) > LARGEST:
            raise self.shape_error(f"{what} can't have the shape {shape}; give sizes of 0 or more, and fewer elements")

    def canonical_axis(self, axis: int, bottom: Blob) -> int:
        """Return `axis` as an index into the bottom's shape; a negative axis counts from the end."""
        axes = len(bottom.shape)
        if not -axes <= axis < axes:
            raise self.shape_error(f"axis {axis} of a bottom of shape {bottom.shape}, which has {axes} axes")
        return axis % axes if axes else axis

    def refuse_gradient(self, propagate_down: Sequence[bool], index: int, what: str) -> None:
        """Raise NetError if the gradient of bottom `index` is needed; `what` names the bottom in the error."""
        if propagate_down[index]:
            raise self.error(f"has no gradient for its {what}; set propagate_down: false for bottom {index}")

    def works(self, bottom: Blobs, top: Blobs, down: bool) -> dict[str, Work]:
        """Return the operations whose kernel is chosen by timing, by name.

        `down` says whether the gradient of a bottom is needed.
        """
        return {}

    def replan(self) -> None:
        """Choose the kernels of `works` again before the next forward pass."""

    def error(self, text: str) -> NetError:
        """Return a NetError that names the layer."""
        return NetError(f"layer '{self.name}' ({self.type}): {text}")

    def shape_error(self, text: str) -> ShapeError:
        """Return a ShapeError that names the layer."""
        return ShapeError(f"layer '{self.name}' ({self.type}): {text}")


_types: dict[str, dict[str, type[Layer]]] = {}  # by layer type, then by engine


def register(kind: str, layer: type[Layer], engine: str = REFERENCE) -> None:
    """Register `layer` as the class of layer type `kind`, or as its form for `engine`.

    Raise ValueError for a type that another module has registered.
    """
    forms = _types.setdefault(kind, {})
    if engine in forms and forms[engine].__module__ != layer.__module__:
        raise ValueError(f"{forms[engine].__module__} and {layer.__module__} both register layer type '{kind}'")
    forms[engine] = layer


def known_types() -> list[str]:
    """Return the registered layer types."""
    return sorted(_types)


def create(param: LayerParameter, context: Context) -> Layer:
    """Return the layer that `param` describes, in the engine's form if there is one, else in the reference form.

    A layer with `engine: CAFFE` has the reference form. Raise NetError for an unknown layer type.
    """
    if param.type not in _types:
        unknown = f"layer '{param.name}': unknown type '{param.type}'{near(param.type, known_types(), 'known types')}"
        raise NetError(refusals.of_layer(param) or unknown)
    forms = _types[param.type]
    engine = REFERENCE if asks_for_plain_code(param) else context.engine.name
    return forms.get(engine, forms[REFERENCE])(param, context)


def check_types(params: Iterable[LayerParameter], path: str | os.PathLike[str]) -> None:
    """Raise NetError, with file and line, for a layer of the prototxt `path` whose type is of one of Caffe's forks."""
    for param in params:
        if param.type not in _types and (refusal := refusals.of_layer(param, path)):
            raise NetError(refusal)


def asked_engine(param: LayerParameter) -> str:
    """Return the engine that a layer's prototxt asks for, CAFFE, CUDNN or MKLDNN; "" where it asks for none.

    The layer type's own field has precedence over the layer's field of Intel's, which any type can have.
    """
    for field, value in param.ListFields():
        if field.name.endswith("_param") and getattr(value, "engine", None):
            return str(ConvolutionParameter.Engine.Name(value.engine))
    return param.engine.partition(":")[0]  # Intel's can name devices behind a colon


def asks_for_plain_code(param: LayerParameter) -> bool:
    """Return whether a layer's prototxt asks for Caffe's own code (`engine: CAFFE`), not a library's."""
    return asked_engine(param) == "CAFFE"


def check_counts(layer: Layer, bottom: Blobs, top: Blobs) -> None:
    """Raise NetError for a wrong number of bottoms, tops or loss weights, or a layer that cannot work in place."""
    for kind, blobs, (least, most) in (("bottom", bottom, layer.bottoms), ("top", top, layer.tops)):
        if not least <= len(blobs) <= most:
            expected = f"{least}" if least == most else f"{least} or more" if most == ANY[1] else f"{least} to {most}"
            plural = "" if most == 1 else "s"
            named = f" ({layer.bottom_names})" if kind == "bottom" and layer.bottom_names else ""
            raise layer.error(f"takes {expected} {kind}{plural}{named}, got {len(blobs)}")
    weights = len(layer.param.loss_weight)
    if weights not in (0, len(top)) and not (layer.makes_top and weights == 1):
        raise layer.error(f"{weights} loss_weight fields for {len(top)} tops; give none, or one for each")
    if not layer.in_place and any(a is b for a in top for b in bottom):
        raise layer.error("can't work in place; give its top a name of its own")
