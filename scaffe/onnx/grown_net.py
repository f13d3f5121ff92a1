"""GrownNet: a net that is built layer by layer, with the shapes of its blobs and the values of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import scaffe.layers  # noqa: F401  registers the layers
from scaffe import engines
from scaffe.blob import Blob, Shape
from scaffe.compute import Compute
from scaffe.context import TEST, Context
from scaffe.engine import REFERENCE
from scaffe.layers.layer import check_counts, create
from scaffe.proto import LayerParameter, NetParameter


class GrownNet:
    """The layers so far. A layer and its top have a name of their own, after the node that is read: `node`."""

    def __init__(self, name: str):
        self.net = NetParameter(name=name)
        self.weights: dict[str, list[np.ndarray]] = {}  # by layer
        self.node = ""
        self._blobs: dict[str, Blob] = {}
        self._names: set[str] = set()
        self._context = Context(TEST, compute=Compute(engine=REFERENCE))
        self._context.engine = engines.create(self._context.compute, None)

    def shape(self, blob: str) -> Shape:
        """Return a blob's shape."""
        return self._blobs[blob].shape

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Add an input."""
        self.node = name
        return self.add("Input", [], input_param=dict(shape=[dict(dim=shape)]))

    def add(self, kind: str, bottoms: Sequence[str], weights: Sequence[Any] = (), **fields: Any) -> str:
        """Add a layer of one top; return the top's name. Its parameters have the values `weights`."""
        return self.add_tops(kind, bottoms, 1, weights, **fields)[0]

    def frozen(self, kind: str, bottoms: Sequence[str], weights: Sequence[Any], **fields: Any) -> str:
        """Add a layer whose parameters are constants, which training leaves alone."""
        return self.add(kind, bottoms, weights, param=[dict(lr_mult=0, decay_mult=0)] * len(weights), **fields)

    def add_tops(
        self, kind: str, bottoms: Sequence[str], count: int, weights: Sequence[Any] = (), **fields: Any
    ) -> list[str]:
        """Add a layer of `count` tops; return their names. Raise NetError or ShapeError where it can't work."""
        name = self._unused(kind)
        tops = [name] if count == 1 else [f"{name}_{i}" for i in range(count)]
        param = LayerParameter(name=name, type=kind, bottom=list(bottoms), top=tops, **fields)
        bottom, top = [self._blobs[one] for one in bottoms], [Blob((), np) for _ in tops]
        layer = create(param, self._context)
        check_counts(layer, bottom, top)
        layer.setup(bottom, top)
        layer.reshape(bottom, top)
        for blob, values in zip(layer.blobs, weights, strict=True):
            if blob.shape != np.shape(values):
                raise layer.shape_error(f"a parameter has shape {blob.shape}, the model's {np.shape(values)}")
        if weights:
            self.weights[name] = [np.asarray(values, np.float32) for values in weights]
        self.net.layer.append(param)
        self._blobs.update(zip(tops, top, strict=True))
        return tops

    def _unused(self, kind: str) -> str:
        """Return the name of a node's first layer, the node's own, or of a further one."""
        name, number = self.node or kind, 1
        while name in self._names:
            number += 1
            name = f"{self.node}/{kind}" + (f"_{number - 1}" if number > 2 else "")
        self._names.add(name)
        return name

    # GrownNet that several ops need.

    def parameter(self, values: np.ndarray) -> str:
        """Add a constant as a blob."""
        values = np.asarray(values, np.float32)
        return self.frozen("Parameter", [], [values], parameter_param=dict(shape=dict(dim=values.shape)))

    def affine(self, x: str, scale: float = 1, shift: float = 0) -> str:
        """Add scale x + shift."""
        return self.add("Power", [x], power_param=dict(scale=scale, shift=shift))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Give a blob a shape; axis 0 follows the batch where it stays as it is, or where it alone is unknown."""
        old = self.shape(x)
        if tuple(shape) == old:
            return x
        dims = list(shape)
        if dims and old and dims[0] == old[0]:
            dims[0] = 0
        return self.add("Reshape", [x], reshape_param=dict(shape=dict(dim=dims)))

    def permute(self, x: str, order: Sequence[int]) -> str:
        """Put axes into another order."""
        if list(order) == list(range(len(order))):
            return x
        return self.add("Permute", [x], permute_param=dict(order=list(order)))

    def cut(self, x: str, axis: int, start: int, stop: int) -> str:
        """Keep the values from start to stop on an axis."""
        size = self.shape(x)[axis]
        points = [point for point in (start, stop) if 0 < point < size]
        if not points:
            return x
        parts = self.add_tops("Slice", [x], len(points) + 1, slice_param=dict(axis=axis, slice_point=points))
        kept = parts.pop(1 if start else 0)
        self.net.layer.append(LayerParameter(name=self._unused("Silence"), type="Silence", bottom=parts))
        return kept

    def tile(self, x: str, axis: int, times: int) -> str:
        """Repeat a blob on an axis."""
        return x if times == 1 else self.add("Tile", [x], tile_param=dict(axis=axis, tiles=times))

    def spread(self, x: str, shape: Shape) -> str:
        """Repeat a blob to a shape that it broadcasts to."""
        old = self.shape(x)
        x = self.reshape(x, (*(1,) * (len(shape) - len(old)), *old))
        for axis, (size, wanted) in enumerate(zip(self.shape(x), shape, strict=True)):
            x = self.tile(x, axis, wanted // size)
        return x

    def pad(self, x: str, begins: Sequence[int], ends: Sequence[int]) -> str:
        """Add zeros around the axes of space of a blob (N x C x ...); negative numbers cut.

        It is a Deconvolution by filters that are 1 at one place.
        """
        for axis, (begin, end) in enumerate(zip(begins, ends, strict=True), 2):
            size = self.shape(x)[axis]
            x = self.cut(x, axis, max(0, -begin), size - max(0, -end))
        begins, ends = [max(0, n) for n in begins], [max(0, n) for n in ends]
        if not any((*begins, *ends)):
            return x
        channels, kernel = self.shape(x)[1], [b + e + 1 for b, e in zip(begins, ends, strict=True)]
        weights = np.zeros((channels, 1, *kernel), np.float32)
        weights.reshape(channels, -1)[:, np.ravel_multi_index(begins, kernel)] = 1
        param = dict(num_output=channels, group=channels, kernel_size=kernel, bias_term=False)
        return self.frozen("Deconvolution", [x], [weights], convolution_param=param)
