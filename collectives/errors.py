"""CollectiveError and what is below it: errors that every rank of the communicator gets alike."""


class CollectiveError(Exception):
    """Root of the package's errors; the communicator stays usable."""

    alike = True  # raised by all ranks at the same point


class DisagreementError(CollectiveError):
    """Ranks called a collective, or set something up, with different values."""


class AlgorithmError(CollectiveError):
    """An algorithm was asked for that does not exist, or with a size that it cannot have."""


class ScheduleError(CollectiveError):
    """A schedule would give a wrong sum, lose a message, overwrite data in flight or never end."""
