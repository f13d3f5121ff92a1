"""Side: a GPU's stream beside the one that computes, where sums are awaited and parameters updated as they come.

The threads of a rank put what they compute on one stream. Were a bucket updated there, the layers still to compute
would wait for its sum; here nobody does, until `join` has the stream that computes come after all that is on this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collectives.execution.device.device import Device


class Host:
    """No stream: on the host all is done at once."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass

    def join(self) -> None:
        """Do nothing."""


class Side(Host):
    """A stream of a device; within `with` it is the calling thread's."""

    def __init__(self, device: Device):
        self._device, self._stream, self._end = device, device.stream(), device.event()

    def __enter__(self) -> None:
        self._stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._stream.__exit__(*error)

    def join(self) -> None:
        """Have what the calling thread puts on its stream from now on wait for all that is on this one."""
        self._end.record(self._stream)
        self._device.current().wait_event(self._end)
