"""SideStream: a GPU stream on which sums are awaited and parameters updated, beside the compute stream.

A rank's threads share one compute stream. If a bucket were updated there, the layers still to be computed would wait
for its sum. On a side stream nothing waits for it until `join`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collectives.execution.device.device import Device


class NoStream:
    """The side stream of a rank that computes on the host, where each call has finished when it returns."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass

    def join(self) -> None:
        """Do nothing."""


class SideStream(NoStream):
    """A stream of a device; within `with` it is the calling thread's current stream."""

    def __init__(self, device: Device):
        self._device, self._stream, self._end = device, device.stream(), device.event()

    def __enter__(self) -> None:
        self._stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._stream.__exit__(*error)

    def join(self) -> None:
        """Make the calling thread's current stream wait for all work queued on this one. The host does not wait."""
        self._end.record(self._stream)
        self._device.current().wait_event(self._end)
