"""Layer: the base of every layer, and the register of layer types.

A layer's life, in the order that Net keeps: `setup` once, `reshape` before a forward pass whose bottoms have
new shapes, then `forward` and `backward` as often as the solver likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from readers import Batch
from readers.waited import Waited
from scaffe.blob import Blob, Shape
from scaffe.context import Context
from scaffe.engine import REFERENCE
from scaffe.errors import NetError, ShapeError
from scaffe.fillers import fill
from scaffe.proto import ConvolutionParameter, FillerParameter, LayerParameter

Blobs = Sequence[Blob]

ANY = (0, 10**6)
LARGEST = 2**46  # elements; no machine addresses more


class Layer:
    """Compute tops from bottoms, and bottoms' gradients from tops' gradients.

    Subclasses set `bottoms` and `tops`, the least and largest number of each that they take, and implement
    the four steps. `self.blobs` are the learnable parameters. Backward overwrites the bottoms' `diff_array`
    where `propagate_down` asks for it and adds to the parameters'.
    """

    bottoms: tuple[int, int] = (1, 1)
    tops: tuple[int, int] = (1, 1)
    bottom_names = ""  # what they are, for who gives another number of them
    summed_tops = 0  # so many of the first tops are this rank's part of a sum over the global batch
    makes_top = False  # Caffe's losses: a top that the prototxt leaves out is made all the same
    in_place = False  # may a top be a bottom?
    capturable = False  # may a GPU record a pass and repeat it: the same launches each time, and nothing on the host?
    views = False  # are the tops bottom 0's own values, seen in another way?
    reshapes_always = False  # do the tops' shapes follow from the bottoms' values, so that each forward needs reshape?
    reads_ahead = False  # do threads read its records ahead, so that it has a `batch` and counts how long it `waited`?
    batch: Batch | None = None
    waited: Waited | None = None
    statistics: tuple[int, ...] = ()  # blobs that are no parameters but measured: no gradient, averaged over ranks

    def __init__(self, param: LayerParameter, context: Context):
        self.param, self.context = param, context
        self.name, self.type = param.name, param.type
        self.blobs: list[Blob] = []
        self.param_propagate_down: list[bool] = []
        self.follower: Layer | None = None  # who alone takes the one top, and no other bottom
        self.xp = context.xp
        self._buffers: dict[str, Any] = {}

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        """Read the layer's fields and make its parameters; the bottoms have their shapes."""

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        """Give the tops their shapes. Raise ShapeError where the bottoms' don't meet."""
        raise NotImplementedError

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        """Compute the tops' `array`."""
        raise NotImplementedError

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute the bottoms' `diff_array` and add to the parameters'."""
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
        """Let go of threads and files; what was written is complete then."""

    def loss_weight(self, top_index: int) -> float:
        """Return the weight of a top in the net's loss, 0 for none."""
        weights = self.param.loss_weight
        return weights[top_index] if top_index < len(weights) else 0.0

    def allows_force_backward(self, bottom_index: int) -> bool:
        """Say whether `force_backward` may ask for this bottom's gradient."""
        return True

    def mixes_samples(self, bottom: Blobs) -> str:
        """Say in a few words why the batch on axis 0 can't be divided over ranks here, "" if it can."""
        return ""

    def labels_taken(self) -> tuple[int, int | None] | None:
        """Return how many classes bottom 1 has labels of, and the label that is ignored; None without labels."""
        return None

    def add_blob(self, shape: Shape, filler: FillerParameter) -> Blob:
        """Make a parameter filled by `filler`, keyed by the seed, the layer's name and the blob's index."""
        self.check_size(shape, "a parameter")
        blob = Blob(shape, self.xp)
        rng = self.context.generator("filler", self.name, len(self.blobs))
        try:
            values = blob.data
        except MemoryError:
            raise self.shape_error(f"no memory for a parameter of shape {shape}: {prod(shape) * 4:.3g} bytes") from None
        fill(values, filler, rng, f"layer '{self.name}'")
        blob.data[...] = values
        self.blobs.append(blob)
        return blob

    def buffer(self, name: str, shape: Shape, dtype: Any) -> Any:
        """Return the layer's own array of that name, zeros at first; it is made anew only for another shape or type."""
        array = self._buffers.get(name)
        if array is None or array.shape != shape or array.dtype != dtype:
            array = self._buffers[name] = self.xp.zeros(shape, dtype)
        return array

    def scratch(self, name: str, shape: Shape, dtype: Any) -> Any:
        """Return an array with any content; other layers may overwrite it once this layer's pass is over."""
        return self.context.engine.scratch(name, shape, dtype)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the layer's own arrays."""
        return sum(array.nbytes for array in self._buffers.values())

    def kept_input(self, bottom: Blob, top: Blob) -> Any:
        """Return the bottom's values for backward to read: a copy of them where the top takes their place."""
        if top is not bottom:
            return bottom.array
        copy = self.buffer("kept input", bottom.shape, bottom.array.dtype)
        copy[...] = bottom.array
        return copy

    @property
    def works_in_place(self) -> bool:
        """Whether the top is the bottom."""
        return list(self.param.bottom) == list(self.param.top)

    @property
    def is_overwritten(self) -> bool:
        """Whether a layer that works in place changes the top before the backward pass."""
        return self.follower is not None and self.follower.works_in_place

    def draw_uniform(self, shape: Shape) -> Any:
        """Return uniform float32 numbers in [0, 1) for values of `shape`, anew for each batch.

        They are keyed by the seed, the layer, the global batch's number and the sample's place in it: any number of
        ranks draws the same.
        """
        return self.xp.asarray(self.context.rows_uniform(self.draw_key(), *self.draw_rows(shape))).reshape(shape)

    def draw_key(self) -> tuple[str | int, ...]:
        """Return what the random numbers of the current batch are keyed by."""
        return self.type.lower(), self.name, self.context.batch_number

    def draw_rows(self, shape: Shape) -> tuple[int, int]:
        """Return how many rows of random numbers values of `shape` take, and how many are in each."""
        rows, count = self.context.local_rows, prod(shape)
        if not rows or count % rows:
            rows = shape[0]
        return rows, count // rows

    def check_size(self, shape: Shape, what: str) -> None:
        """Raise ShapeError where no blob, called `what`, can have this shape."""
        if min(shape, default=0) < 0 or prod(shape) > LARGEST:
            raise self.shape_error(f"{what} can't have the shape {shape}; give sizes that make sense")

    def canonical_axis(self, axis: int, bottom: Blob) -> int:
        """Return `axis`, counted from the end when negative, as an index into the bottom's shape."""
        axes = len(bottom.shape)
        if not -axes <= axis < axes:
            raise self.shape_error(f"axis {axis} of a bottom of shape {bottom.shape}, which has {axes} axes")
        return axis % axes if axes else axis

    def refuse_gradient(self, propagate_down: Sequence[bool], index: int, what: str) -> None:
        """Raise NetError where bottom `index`, called `what`, is asked for a gradient, which it doesn't have."""
        if propagate_down[index]:
            raise self.error(f"has no gradient for its {what}; set propagate_down: false for bottom {index}")

    def works(self, bottom: Blobs, top: Blobs, down: bool) -> dict[str, Callable[[], dict[str, float]]]:
        """Return the work whose way of being done is a matter of timing, by its name, and what times it.

        That returns the seconds of each way, the one to take without timing first. `down`: is a bottom's gradient
        needed?
        """
        return {}

    def replan(self) -> None:
        """Choose the ways to do `works` anew before the next forward pass."""

    def error(self, text: str) -> NetError:
        """Return a NetError that names the layer."""
        return NetError(f"layer '{self.name}' ({self.type}): {text}")

    def shape_error(self, text: str) -> ShapeError:
        """Return a ShapeError that names the layer."""
        return ShapeError(f"layer '{self.name}' ({self.type}): {text}")


_types: dict[str, dict[str, type[Layer]]] = {}  # by type and engine


def register(kind: str, layer: type[Layer], engine: str = REFERENCE) -> None:
    """Let prototxt files name `layer` by its type; `engine` is whose form of that type it is."""
    _types.setdefault(kind, {})[engine] = layer


def known_types() -> list[str]:
    """Return the types that prototxt files can name."""
    return sorted(_types)


def create(param: LayerParameter, context: Context) -> Layer:
    """Return the layer that `param` describes, in its engine's form if there is one. Raise NetError for no type.

    The engine is the net's, or where the layer says `engine: CAFFE`, Caffe's plain code, the reference.
    """
    if param.type not in _types:
        raise NetError(f"layer '{param.name}': unknown type '{param.type}'; known types: {' '.join(known_types())}")
    forms = _types[param.type]
    engine = REFERENCE if asks_for_plain_code(param) else context.engine.name
    return forms.get(engine, forms[REFERENCE])(param, context)


def asks_for_plain_code(param: LayerParameter) -> bool:
    """Say whether a layer's prototxt wants it computed by Caffe's plain code."""
    return any(getattr(value, "engine", None) == ConvolutionParameter.CAFFE for _, value in param.ListFields())


def check_counts(layer: Layer, bottom: Blobs, top: Blobs) -> None:
    """Raise NetError unless the layer takes this many bottoms, gives this many tops, and may be in place if it is."""
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
