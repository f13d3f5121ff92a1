"""CollectiveError and what is below it: errors that every rank of the communicator gets alike."""

from __future__ import annotations


class CollectiveError(Exception):
    """Root of the package's errors; the communicator stays usable."""

    alike = True  # raised by all ranks at the same point


class DisagreementError(CollectiveError):
    """Ranks called a collective, or set something up, with different values."""


class AlgorithmError(CollectiveError):
    """An algorithm was asked for that does not exist, or with a size that it cannot have."""


class ScheduleError(CollectiveError):
    """A schedule would give a wrong sum, lose a message, overwrite data in flight or never end."""


class ArgumentError(CollectiveError):
    """An argument that makes no sense: which, what was expected, what came."""


class DeviceFault(CollectiveError):
    """A device that failed while data was under way: on one rank alone, where the device is of no more use."""

    alike = False

    def located(self, what: str) -> DeviceFault:
        """Return it with what was under way."""
        return DeviceFault(f"{what}: {self}")
