"""Batches: a net run over arrays that are longer than its batch, as pycaffe's forward_all and forward_backward_all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from scaffe.blob import Blob
from scaffe.errors import CallError, ShapeError, UnknownBlobError

Arrays = dict[str, np.ndarray]


class Runner(Protocol):
    """A scaffe.Net, of which this module uses the blobs and the passes."""

    @property
    def blobs(self) -> Mapping[str, Blob]:
        """All blobs by name, the one that gives the batch its size first."""

    @property
    def inputs(self) -> Sequence[str]:
        """The names of the inputs."""

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the outputs."""

    @property
    def forward(self) -> Callable[..., Arrays]:
        """Run a batch: `blobs` are returned too, keywords are inputs."""

    @property
    def backward(self) -> Callable[..., Arrays]:
        """Run a batch backward: `diffs` are returned too, keywords are outputs' gradients."""


def forward_all(net: Runner, blobs: Sequence[str] | None, given: Mapping[str, npt.ArrayLike]) -> Arrays:
    """Return the outputs, and `blobs`, of a forward pass over each batch of the inputs."""
    arrays = _checked(given, net.inputs)
    values = _rows(net, [*net.outputs, *(blobs or [])], arrays)
    for batch in batches(net, arrays):
        _add(values, net.forward(blobs=blobs, **batch))
    return _joined(net, values)


def forward_backward_all(
    net: Runner, blobs: Sequence[str] | None, diffs: Sequence[str] | None, given: Mapping[str, npt.ArrayLike]
) -> tuple[Arrays, Arrays]:
    """Return the outputs and `blobs`, and the inputs' gradients and `diffs`, of both passes over each batch.

    `given` are inputs, and gradients of outputs; an output without one keeps the gradient that its blob has.
    """
    arrays = _checked(given, [*net.inputs, *net.outputs])
    values = _rows(net, [*net.outputs, *(blobs or [])], arrays)
    gradients = _rows(net, [*net.inputs, *(diffs or [])], arrays)
    for batch in batches(net, arrays):
        inputs, tops = ({name: batch[name] for name in names if name in batch} for names in (net.inputs, net.outputs))
        _add(values, net.forward(blobs=blobs, **inputs))
        _add(gradients, net.backward(diffs=diffs, **tops))
    return _joined(net, values), _joined(net, gradients)


def batches(net: Runner, given: Mapping[str, npt.ArrayLike]) -> Iterator[Arrays]:
    """Iterate over arrays in batches of the net's size, the length of axis 0 of its first blob; zeros fill the last.

    Whole batches are views of the arrays given. Raise ShapeError where these differ in length.
    """
    arrays = {name: np.asarray(array) for name, array in given.items()}
    size = _batch_size(net)
    for first in range(0, _count(arrays), size):
        yield {name: _padded(array[first : first + size], size) for name, array in arrays.items()}


def _checked(given: Mapping[str, npt.ArrayLike], known: Sequence[str]) -> Arrays:
    """Return what is given as arrays. Raise CallError without any, UnknownBlobError for a name that is not `known`."""
    names = " ".join(known) or "none"
    if not given:
        raise CallError(f"no arrays are given; the net's blobs that can be given: {names}")
    for name in given:
        if name not in known:
            raise UnknownBlobError(f"'{name}' can't be given; the net's blobs that can: {names}")
    return {name: np.asarray(array) for name, array in given.items()}


def _batch_size(net: Runner) -> int:
    return next(iter(net.blobs.values())).num


def _count(arrays: Arrays) -> int:
    """Return the number of rows that the arrays have. Raise ShapeError where they differ."""
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        rows = ", ".join(f"'{name}' {length}" for name, length in lengths.items())
        raise ShapeError(f"expected arrays of one length, got rows: {rows}")
    return next(iter(lengths.values()), 0)


def _padded(rows: np.ndarray, size: int) -> np.ndarray:
    if len(rows) == size:
        return rows
    padded = np.zeros((size, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    return padded


class JoinedRows:
    """A blob's values in all batches, joined without the rows of the padding.

    Values without a row for each sample, such as a loss, are those of each batch: one after the other along axis 0, or
    for scalars an array of one number for each batch.
    """

    def __init__(self, count: int, size: int):
        self.count, self.size = count, size
        self._first = 0
        self._joined: np.ndarray | None = None
        self._parts: list[np.ndarray] = []

    def add(self, values: np.ndarray) -> None:
        """Copy the values of the next batch."""
        if values.shape[:1] != (self.size,):
            self._parts.append(np.atleast_1d(values).copy())
            return
        if self._joined is None:
            self._joined = np.empty((self.count, *values.shape[1:]), values.dtype)
        last = min(self._first + self.size, self.count)
        self._joined[self._first : last] = values[: last - self._first]
        self._first = last

    def joined(self, blob: Blob) -> np.ndarray:
        """Return the values of all batches; without a batch, no rows of the blob's shape."""
        if self._joined is not None:
            return self._joined
        return np.concatenate(self._parts) if self._parts else np.empty((0, *blob.shape[1:]), np.float32)


def _rows(net: Runner, names: Sequence[str], arrays: Arrays) -> dict[str, JoinedRows]:
    return {name: JoinedRows(_count(arrays), _batch_size(net)) for name in names}


def _add(rows: Mapping[str, JoinedRows], values: Arrays) -> None:
    for name, array in values.items():
        rows[name].add(array)


def _joined(net: Runner, rows: Mapping[str, JoinedRows]) -> Arrays:
    return {name: found.joined(net.blobs[name]) for name, found in rows.items()}
