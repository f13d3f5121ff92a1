"""The tree of errors. Each message is one line: where, what was expected, what was found.

An error is also of the built-in class in brackets, which pycaffe raises where it raises one: programs catch either.

ScaffeError            [RuntimeError, for all]
├── FileError          [OSError] a file that cannot be read or written
│   ├── PrototxtError  a prototxt or binary protobuf file that cannot be read: file, line
│   ├── WeightsError   weights or a solver state that cannot be read, or belong to another net or solver
│   ├── SnapshotError  a snapshot that cannot be written or read
│   ├── TimelineError  a file that is no timeline, or an empty one
│   └── LogError       a file that is no log of training, or a picture of logs that cannot be drawn
├── NetError           a net that cannot be built: layer, blob
│   ├── UnknownNameError  [AttributeError] a layer type or constant that `scaffe.layers` or `scaffe.params` lacks
│   ├── ShapeError     [ValueError] bottoms, parameters or inputs with wrong shapes
│   ├── TopError       [TypeError] a value that is no Top where a NetSpec or a layer needs one
│   └── SplitError     a batch that cannot be divided over the ranks
├── UnknownLayerError  [ValueError] a layer that a net does not have
├── UnknownBlobError   [KeyError] a blob that a net does not have
├── CallError          [TypeError] an argument that is missing or of a wrong type
├── LabelError         a label outside the classes: row, record
├── LaunchError        a launcher, an MPI or a device that differs from the one requested
├── DeviceError        a GPU that failed or ran out of memory in a layer's pass
├── EngineError        an engine that is unknown or not available
│   ├── PlanError      a plan file that cannot be used
│   ├── CublasError    cuBLAS is missing, or refused a product
│   ├── CudnnError     cuDNN is missing, or failed in a plan that it proposed
│   └── OnednnError    oneDNN is missing, has another version, or refused a call
└── AgreedError        an error that all ranks raise at the same point
    ├── RanksLostError  fewer ranks than the run needs, or the one with the solver's state, since processes ended
    ├── DivergedError  a loss, a parameter or a learning rate that is not finite
    └── BadRecordsError  more bad records than the run allows

readers.ReaderError and collectives.CollectiveError are the roots of the other packages' trees. The command line
catches all three.
"""

from __future__ import annotations


class ScaffeError(RuntimeError):
    """An error that a user can correct: the command line prints its text only and exits with code 2."""

    alike = False  # whether all ranks raise it at the same point


class FileError(ScaffeError, OSError):
    """A file that cannot be read or written."""


class PrototxtError(FileError):
    """A prototxt or binary protobuf file that cannot be read."""


class NetError(ScaffeError):
    """A net that cannot be built."""


class UnknownNameError(NetError, AttributeError):
    """An unknown layer type or constant; also an AttributeError, as Python expects from a module's attributes."""


class ShapeError(NetError, ValueError):
    """Shapes that do not fit a layer or each other."""


class TopError(NetError, TypeError):
    """A value that is no Top where a NetSpec or a layer needs one."""


class SplitError(NetError):
    """A batch that cannot be divided over the ranks."""


class UnknownLayerError(ScaffeError, ValueError):
    """A layer that a net does not have."""


class UnknownBlobError(ScaffeError, KeyError):
    """A blob that a net does not have."""

    __str__ = Exception.__str__  # a KeyError would put its text in quotes


class CallError(ScaffeError, TypeError):
    """An argument that is missing or of a wrong type."""


class LabelError(ScaffeError):
    """A label outside the classes, in a row of this rank's batch."""

    def __init__(self, layer: str, row: int, label: float, classes: int, origin: str = ""):
        self.layer, self.row, self.label, self.classes = layer, row, label, classes
        where = f"row {row}" + (f" ({origin})" if origin else "")
        super().__init__(f"layer '{layer}': label {label:g} in {where} is outside the classes 0 to {classes - 1}")

    def located(self, origin: str) -> LabelError:
        """Return the same error with the name of the row's record."""
        return LabelError(self.layer, self.row, self.label, self.classes, origin)


class WeightsError(FileError):
    """Weights or a solver state that cannot be read, or belong to another net or solver."""


class SnapshotError(FileError):
    """A snapshot that cannot be written or read."""


class TimelineError(FileError):
    """A file that is no timeline, or an empty one."""


class LogError(FileError):
    """A file that is no log of training, or a picture of logs that cannot be drawn."""


class LaunchError(ScaffeError):
    """A launcher, an MPI or a device that differs from the one requested."""


class DeviceError(ScaffeError):
    """A GPU that failed or ran out of memory."""


class EngineError(ScaffeError):
    """An engine that is unknown or not available."""


class PlanError(EngineError):
    """A plan file that cannot be used."""


class CublasError(EngineError):
    """cuBLAS is missing, or refused a call: the status by its name, and the shapes."""


class CudnnError(EngineError):
    """cuDNN is missing, or failed in a plan that it proposed."""


class OnednnError(EngineError):
    """oneDNN is missing, has another version, or refused a call; `status` is its return code, 0 if there is none."""

    def __init__(self, message: str, status: int = 0):
        self.status = status
        super().__init__(message)

    def located(self, layer: str) -> OnednnError:
        """Return the same error with the calling layer and its shapes."""
        return OnednnError(f"{layer}: {self}; --engine reference computes it without oneDNN", self.status)


class AgreedError(ScaffeError):
    """An error that all ranks raise at the same point, so that it is reported once."""

    alike = True


class DivergedError(AgreedError):
    """A loss, a parameter, its gradient or history, or a learning rate that is not finite on some rank."""


class RanksLostError(AgreedError):
    """Processes have ended, and the ranks that are left can't go on."""

    exit_code = 76


class BadRecordsError(AgreedError):
    """More bad records over all ranks than the run allows."""


def add_note(error: BaseException, note: str) -> None:
    """Add a note on where an error was raised, once, as BaseException.add_note does from Python 3.11 on."""
    if note not in notes(error):
        error.__dict__["__notes__"] = [*notes(error), note]


def notes(error: BaseException) -> list[str]:
    """Return an error's notes, such as "instance 1 of 2"."""
    return list(getattr(error, "__notes__", []))


def text_of(error: BaseException) -> str:
    """Return an error's text, with its notes before it."""
    return ": ".join([*notes(error), str(error)])
