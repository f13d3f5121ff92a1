"""One layer on its own, over float64 blobs, so that finite differences tell wrong gradients from rounding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from google.protobuf import text_format

import scaffe.layers  # noqa: F401  registers the layers
from scaffe.blob import Blob
from scaffe.context import Context
from scaffe.layers.layer import check_counts, create
from scaffe.proto import LayerParameter

STEP = 1e-4
TOLERANCE = 1e-6


class OneLayer:
    """Build the layer of a prototxt snippet over blobs with these arrays; `in_place` makes the bottom its top."""

    def __init__(
        self,
        text: str,
        *bottoms,
        tops: int = 1,
        context: Context | None = None,
        in_place: bool = False,
        name: str = "it",
    ):
        self.context = context or Context()
        self.layer = create(text_format.Parse(f'name: "{name}" {text}', LayerParameter()), self.context)
        self.bottom = [Blob(np.shape(array)) for array in bottoms]
        for blob, array in zip(self.bottom, bottoms, strict=True):
            blob.array = np.array(array, np.float64)
        self.top = self.bottom if in_place else [Blob() for _ in range(tops)]
        check_counts(self.layer, self.bottom, self.top)
        self.layer.setup(self.bottom, self.top)
        self.layer.reshape(self.bottom, self.top)
        self.layer.param_propagate_down = [True] * len(self.layer.blobs)
        for blob in (*self.layer.blobs, *self.top):
            blob.array = blob.array.astype(np.float64)
        for blob in (*self.layer.blobs, *self.bottom, *self.top):
            blob.diff_array = np.zeros(blob.shape)

    def forward(self) -> list[np.ndarray]:
        """Run the layer and return copies of its tops."""
        self.layer.forward(self.bottom, self.top)
        return [blob.array.copy() for blob in self.top]

    def backward(self, *top_diffs, down: Sequence[bool] | None = None) -> list[np.ndarray]:
        """Run the layer backward from these gradients of the tops and return copies of the bottoms'."""
        for blob, diff in zip(self.top, top_diffs, strict=True):
            blob.diff_array[...] = diff
        self.layer.backward(self.top, down or [True] * len(self.bottom), self.bottom)
        return [blob.diff_array.copy() for blob in self.bottom]


def check_gradients(
    text: str,
    *bottoms,
    tops: int = 1,
    smooth: Iterable[int] | None = None,
    seed: int = 0,
    context: Context | None = None,
) -> None:
    """Compare the gradients of the `smooth` bottoms (default: all) and of all parameters with finite differences.

    The function differentiated is a random weighting of all tops. Gradients of bottoms must be overwritten,
    those of parameters added to what is there.
    """
    rng = np.random.default_rng(seed)
    it = OneLayer(text, *bottoms, tops=tops, context=context)
    smooth = list(range(len(bottoms)) if smooth is None else smooth)
    weights = [rng.standard_normal(top.shape) for top in it.forward()]
    for blob in it.layer.blobs:
        blob.array[...] = rng.standard_normal(blob.shape)
        blob.diff_array[...] = rng.standard_normal(blob.shape)
    for blob in it.bottom:
        blob.diff_array[...] = np.nan
    before = [blob.diff_array.copy() for blob in it.layer.blobs]
    it.forward()
    bottom_diffs = it.backward(*weights, down=[i in smooth for i in range(len(bottoms))])
    for i in smooth:
        assert_gradient(bottom_diffs[i], numeric_gradient(it, weights, it.bottom[i].array), f"bottom {i}")
    for i, blob in enumerate(it.layer.blobs):
        assert_gradient(blob.diff_array - before[i], numeric_gradient(it, weights, blob.array), f"parameter {i}")


def numeric_gradient(it: OneLayer, weights: Sequence[np.ndarray], values: np.ndarray) -> np.ndarray:
    """Return the central differences of the weighted tops by each element of `values`, an array that `it` reads."""
    gradient = np.empty(values.shape)
    for index in np.ndindex(values.shape):
        kept = values[index]
        sides = []
        for side in (kept + STEP, kept - STEP):
            values[index] = side
            sides.append(sum((w * top).sum() for w, top in zip(weights, it.forward(), strict=True)))
        values[index] = kept
        gradient[index] = (sides[0] - sides[1]) / (2 * STEP)
    return gradient


def assert_gradient(got: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Fail unless the gradients agree to TOLERANCE of the largest."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE * max(1e-3, np.abs(expected).max()), err_msg=what)


def distinct(*shape: int, seed: int = 0) -> np.ndarray:
    """Return values in random order that are far apart, and far from 0, against the step of a difference."""
    count = int(np.prod(shape))
    values = (np.arange(count) - count / 2 + 0.25) / count
    return np.random.default_rng(seed).permutation(values).reshape(shape)


def contexts(batch: int, ranks: int, **fields) -> list[Context]:
    """Return the contexts of `ranks` ranks that share a batch, as a data layer leaves them."""
    all_ranks = [Context(rank=rank, size=ranks, **fields) for rank in range(ranks)]
    for context in all_ranks:
        context.take_share("data", batch)
    return all_ranks


def rows(context: Context) -> slice:
    """Return the rows of the global batch that a rank has."""
    return slice(context.first_row, context.first_row + (context.local_rows or 0))
