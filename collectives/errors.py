"""Errors of the package.

    CollectiveError
    ├── DisagreementError
    ├── AlgorithmError
    ├── ScheduleError
    ├── ArgumentError
    ├── DeviceFault         raised on one rank alone
    ├── RankLostError       raised on each rank that is left, sooner or later
    └── WaitTimeout         raised on one rank alone; what it waits for goes on

Every other error of a collective is raised on all ranks of the communicator, with the same text.
"""

from __future__ import annotations


class CollectiveError(Exception):
    """Root of the package's errors. The communicator stays usable."""

    alike = True  # whether all ranks raise it at the same point


class DisagreementError(CollectiveError):
    """The ranks called a collective, or made an object, with different values."""


class AlgorithmError(CollectiveError):
    """The named algorithm does not exist, or can't have the given size."""


class ScheduleError(CollectiveError):
    """A schedule gives a wrong sum, loses a message, overwrites data in flight or never ends."""


class ArgumentError(CollectiveError):
    """An invalid argument: its name, what was expected, what was given."""


class DeviceFault(CollectiveError):
    """A device failed during a collective. One rank alone raises it, and its device is no longer usable."""

    alike = False

    def located(self, what: str) -> DeviceFault:
        """Return this error with `what`, the operation that was under way, before its text."""
        return DeviceFault(f"{what}: {self}")


class RankLostError(CollectiveError):
    """A process of the communicator has ended. The communicator is no longer usable: see `collectives.loss`."""

    alike = False


class WaitTimeout(CollectiveError, TimeoutError):
    """A wait took longer than the caller allowed. What it waits for is still under way; wait again."""

    alike = False
