"""What can go wrong, as a tree. Each message is one line that says where, what was expected and what came.

ScaffeError
├── PrototxtError      a prototxt or binary protobuf that can't be read: file, line
├── NetError           a net that can't be built: layer, blob
│   ├── UnknownNameError  a layer type or constant that `scaffe.layers` or `scaffe.params` doesn't have
│   ├── ShapeError     bottoms or parameters whose shapes don't meet
│   └── SplitError     a batch that can't be divided over the ranks
├── LabelError         a label outside the classes: row, later its record
├── WeightsError       weights or solver state that can't be opened, or don't belong to this net or solver
├── SnapshotError      a snapshot that can't be written or read
├── TimelineError      a file that is no timeline, or says nothing
├── LaunchError        a launcher, an MPI or a device that isn't what the user asked for
├── DeviceError        a GPU that failed, or has no room, in a layer's pass
├── EngineError        an engine that isn't there
│   ├── PlanError      a plan file that can't be used
│   ├── CudnnError     cuDNN missing, or failing in a plan that it proposed
│   └── OnednnError    oneDNN missing, of another version, or refusing what a layer asks
└── AgreedError        any of these, told to all ranks by the one that had it
    ├── DivergedError  a loss, a parameter or a learning rate that is not finite
    └── BadRecordsError  more bad records than a run passes over

readers.ReaderError and collectives.CollectiveError are the roots of their packages' own trees; the command
line catches the three of them.
"""

from __future__ import annotations


class ScaffeError(Exception):
    """Whatever a user can mend: the command line prints its text alone and exits with code 2."""

    alike = False  # raised by all ranks at the same point?


class PrototxtError(ScaffeError):
    """A prototxt or binary protobuf file that can't be read."""


class NetError(ScaffeError):
    """A net that can't be built."""


class UnknownNameError(NetError, AttributeError):
    """A layer type or constant that a module doesn't have; an AttributeError too, as Python asks of modules."""


class ShapeError(NetError):
    """Shapes that don't meet."""


class SplitError(NetError):
    """A batch that can't be divided over the ranks."""


class LabelError(ScaffeError):
    """A label outside the classes, in a row of this rank's batch."""

    def __init__(self, layer: str, row: int, label: float, classes: int, origin: str = ""):
        self.layer, self.row, self.label, self.classes = layer, row, label, classes
        where = f"row {row}" + (f" ({origin})" if origin else "")
        super().__init__(f"layer '{layer}': label {label:g} in {where} is outside the classes 0 to {classes - 1}")

    def located(self, origin: str) -> LabelError:
        """Return the same error with the record that the row came from."""
        return LabelError(self.layer, self.row, self.label, self.classes, origin)


class WeightsError(ScaffeError):
    """Weights or a solver state that can't be opened, or don't belong to this net or solver."""


class SnapshotError(ScaffeError):
    """A snapshot that can't be written or read."""


class TimelineError(ScaffeError):
    """A file that is no timeline, or says nothing."""


class LaunchError(ScaffeError):
    """A launcher, an MPI or a device that isn't what the user asked for."""


class DeviceError(ScaffeError):
    """A GPU that failed, or has no room."""


class EngineError(ScaffeError):
    """An engine that isn't there."""


class PlanError(EngineError):
    """A plan file that can't be used."""


class CudnnError(EngineError):
    """cuDNN is missing, or a plan that it proposed and built does not run."""


class OnednnError(EngineError):
    """oneDNN is missing, is of another version, or refused a call; `status` is its code, 0 where there is none."""

    def __init__(self, message: str, status: int = 0):
        self.status = status
        super().__init__(message)

    def located(self, layer: str) -> OnednnError:
        """Return the same error with the layer that asked, and its shapes."""
        return OnednnError(f"{layer}: {self}; --engine reference computes it without oneDNN", self.status)


class AgreedError(ScaffeError):
    """An error that all ranks raise at the same point, so that one report is enough."""

    alike = True


class DivergedError(AgreedError):
    """A loss, a parameter, its gradient or history, or a learning rate that is not finite on some rank."""


class BadRecordsError(AgreedError):
    """More bad records over all ranks than a run passes over."""
