"""Ahead: a data layer's batches are copied to the GPU while the net still computes on those before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from readers import Batch, Transform
from scaffe.blob import Blob
from scaffe.blobs.delivery import Delivery, Fill
from scaffe.devices.gpu import Gpu

if TYPE_CHECKING:
    from collectives.execution.device.device import Device, Stream

Step = Callable[[Any, Any, Any], None]  # transforms images by their places into an array, all on the device
Transforming = Callable[[Transform], Step]


class Twin:
    """A batch's arrays on the device. They are `sent` once copied there, and `passed` once the net needs them no more.

    Until `sent` the copy reads the host's arrays, so nobody may write to these; the next copy waits for `passed`. The
    memory is taken for the stream that copies, so that nothing on another one may still be using it.
    """

    def __init__(self, device: Device, stream: Stream, batch: Batch):
        self.device, self.stream = device, stream
        self.sent, self.passed = device.event(patient=True), device.event(patient=True)
        self._memory = [self._empty(part.nbytes) for part in _likely_parts(batch)]
        self._views: dict[bool, list[Any]] = {}

    def arrays(self, batch: Batch) -> list[Any]:
        """Return the device's array for each of a batch's parts, the same ones each time unless shapes change."""
        wanted = parts(batch)
        views = self._views.get(batch.is_raw)
        if views is None or any(view.shape != part.shape for view, part in zip(views, wanted, strict=True)):
            views = self._views[batch.is_raw] = [self._view(i, part) for i, part in enumerate(wanted)]
        return views

    def _view(self, i: int, part: np.ndarray) -> Any:
        if self._memory[i].nbytes < part.nbytes:  # images that differ in size
            self.passed.Wait()
            self._memory[i] = self._empty(part.nbytes)
            self._views.clear()
        return self._memory[i][: part.nbytes].view(part.dtype).reshape(part.shape)

    def _empty(self, nbytes: int) -> Any:
        return self.device.empty((nbytes,), np.dtype(np.uint8), self.stream)


class Ahead(Delivery):
    """Delivery to a GPU: batches in pinned memory and their twins there; copies run on a stream of their own.

    `make` gives what does a transform's work on the device; without it the host transforms. `give` copies a batch's
    values on the current stream, so the blobs' arrays stay where they are. Only a reader thread whose batch is still
    being copied waits for the device.
    """

    in_turn = 3  # one is filled while the device copies another and computes on a third

    def __init__(self, gpu: Gpu, make: Transforming | None = None):
        self.gpu, self._make = gpu, make
        self.device = gpu.device if gpu.device is not None else _device()
        self.stream = self.device.stream()
        self.transforms = make is not None
        self._twins: dict[Batch, Twin] = {}
        self._step: tuple[Transform, Step] | None = None

    def memory(self) -> Ahead:
        """Return where batches get their memory: here, pinned."""
        return self

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return bytes of pinned memory."""
        return self.device.pinned(nbytes)

    def add(self, batches: list[Batch]) -> list[Batch]:
        """Give batches their twins, and return them."""
        self._twins.update((batch, Twin(self.device, self.stream, batch)) for batch in batches)
        return batches

    def filling(self, fill: Fill) -> Fill:
        """Return what fills a batch and sends it, in any thread."""

        def run(number: int, batch: Batch) -> None:
            self.gpu.use()
            self.wait(batch)
            fill(number, batch)
            self.send(batch)

        return run

    def wait(self, batch: Batch) -> None:
        """Wait until a batch's pinned memory has been copied from, if it was sent."""
        self._twins[batch].sent.Wait()

    def send(self, batch: Batch) -> None:
        """Put a full batch's copy on the stream, after all that the net still does with what was there before."""
        twin = self._twins[batch]
        arrays = twin.arrays(batch)
        self.stream.wait_event(twin.passed)
        for array, part in zip(arrays, parts(batch), strict=True):
            self.device.copy(array, part, self.stream)
        twin.sent.record(self.stream)

    def give(self, batch: Batch, blobs: Sequence[Blob]) -> None:
        """Write a batch's values to blobs: puts the copies on the current stream, behind those to the device."""
        twin, stream = self._twins[batch], self.device.current()
        arrays = twin.arrays(batch)
        stream.wait_event(twin.sent)
        if batch.is_raw:
            assert batch.raw is not None
            *arrays, places = arrays
            shape = batch.raw.transform.output_shape(batch.raw.images.shape[1:])
            blobs[0].reshape(len(batch.raw.images), *shape)
            self._transforming(batch.raw.transform)(arrays[0], places, blobs[0].array)
            blobs, arrays = blobs[1:], arrays[1:]
        for blob, array in zip(blobs, arrays, strict=False):  # a label without a top is read all the same
            blob.reshape(*array.shape)
            self.device.copy(blob.array, array, stream)
        twin.passed.record(stream)

    def close(self) -> None:
        """Forget the batches, when nothing copies from their memory or reads the twins' any more."""
        for twin in self._twins.values():
            with suppress(Exception):  # the thread that computes reports a lost device
                twin.sent.Wait()
                twin.passed.Wait()
        self._twins.clear()

    def _transforming(self, transform: Transform) -> Step:
        if self._step is None or self._step[0] is not transform:
            assert self._make is not None
            self._step = transform, self._make(transform)
        return self._step[1]


def parts(batch: Batch) -> list[np.ndarray]:
    """Return a batch's arrays on the host that are to be copied."""
    return _raw_parts(batch) if batch.is_raw else batch.arrays


def _likely_parts(batch: Batch) -> list[np.ndarray]:
    """Return what is likely to be copied of a batch that isn't full yet: raw images, if it has room for these."""
    return batch.arrays if batch.raw is None else _raw_parts(batch)


def _raw_parts(batch: Batch) -> list[np.ndarray]:
    assert batch.raw is not None
    return [batch.raw.images, *batch.arrays[1:], batch.raw.places]


def _device() -> Device:
    """Return CuPy's current GPU."""
    from collectives.execution.device import cuda

    return cuda.find()
