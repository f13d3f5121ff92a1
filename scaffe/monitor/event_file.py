"""EventFiles: the numbers of a run as TensorBoard's event files, by tensorboardX's messages and checksums."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from readers.files import lock
from scaffe.errors import ScaffeError
from scaffe.monitor.log import log
from scaffe.monitor.numbers import Node, Numbers

NAME = "events.out.tfevents"  # by which TensorBoard finds the files
VERSION = "brain.Event:2"


class EventFiles:
    """Write numbers to a new event file in a folder, which no other run may write to at the same time.

    Making it makes the folder and locks it, or else the first `write` does, and each until it can. The lock ends with
    `close` or with the process, however that ends. Records are appended whole: a run that is killed, or a full disk,
    leaves a file that can be read. Raise ScaffeError if tensorboardX is not installed, the folder can't be written, or
    another run writes there.
    """

    def __init__(self, folder: str | os.PathLike[str], at_once: bool = True):
        self.name = f"tensorboard '{folder}'"
        self._folder = os.path.abspath(folder)
        self._file: int | None = None
        self._lock: int | None = None
        self._owed: list[Numbers] = []  # not yet written, and needed by those that follow
        self._has_folder = False
        if at_once:
            self._take_folder()
            if not os.access(self._folder, os.W_OK):
                self.close()
                raise ScaffeError(f"{self.name}: no permission to write in {folder}")

    def _take_folder(self) -> None:
        _need_tensorboardx()
        try:
            os.makedirs(self._folder, exist_ok=True)
            self._lock = _locked(self._folder)
        except BlockingIOError:
            raise ScaffeError(f"{self.name}: another run writes there; give each run a folder of its own") from None
        except OSError as error:
            raise ScaffeError(f"{self.name}: {(error.strerror or str(error)).lower()}") from None
        self._has_folder = True

    @property
    def has_curves(self) -> bool:
        """Whether an earlier run wrote there."""
        return any(NAME in name for name in os.listdir(self._folder))

    def write(self, numbers: Sequence[Numbers]) -> None:
        """Append the numbers. Raise OSError or ScaffeError where that fails, the file then being as it was.

        The next call then also writes those that begin a run, or describe it.
        """
        numbers = [*self._owed, *numbers]
        self._owed = [one for one in numbers if one.begun is not None or one.texts]
        file = self._opened()
        events = [event for one in numbers for event in _events(one)]
        if not os.fstat(file).st_size:
            events.insert(0, _event(0, file_version=VERSION))
        _append(file, b"".join(_record(event.SerializeToString()) for event in events))
        self._owed = []

    def _opened(self) -> int:
        """Return the file: a new one at first, and where somebody has removed it or its folder."""
        if any(one is not None and not os.fstat(one).st_nlink for one in (self._file, self._lock)):
            self.close()
        if not self._has_folder:
            self._take_folder()
        if self._file is None:
            self._file = os.open(self._new_path(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        return self._file

    def _new_path(self) -> str:
        """Return a name that follows, in the order of names, those of earlier files of this host."""
        now = time.time_ns()
        return os.path.join(self._folder, f"{NAME}.{now // 10**9}.{socket.gethostname()}.{now}.{os.getpid()}")

    def close(self) -> None:
        """Close the file, and unlock the folder."""
        for one in (self._file, self._lock):
            if one is not None:
                os.close(one)
        self._file = self._lock = None
        self._has_folder = False


def _need_tensorboardx() -> None:
    try:
        import tensorboardX  # noqa: F401
    except ImportError:
        raise ScaffeError("--tensorboard needs the package tensorboardX: pip install 'scaffe[monitor]'") from None


def _locked(folder: str) -> int:
    """Return the descriptor of a folder that this holds the lock of. Raise BlockingIOError if another does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock(descriptor)
    except BlockingIOError:
        os.close(descriptor)
        raise
    return descriptor


def _append(file: int, content: bytes) -> None:
    """Append to a file all of the content, or nothing."""
    end = os.lseek(file, 0, os.SEEK_END)
    left = memoryview(content)
    try:
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file, end)
        raise


def _record(content: bytes) -> bytes:
    """Return a record of TensorFlow's TFRecord format: length, its checksum, content, its checksum."""
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc32c(length)) + content + struct.pack("<I", masked_crc32c(content))


def _event(iteration: int, **content: Any) -> Any:
    from tensorboardX.proto.event_pb2 import Event

    return Event(wall_time=time.time(), step=iteration, **content)


def _events(numbers: Numbers) -> Iterator[Any]:
    """Iterate over the events of some numbers: one for all curves, since each costs a record."""
    from tensorboardX.proto.event_pb2 import SessionLog
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.summary import text

    if numbers.begun is not None:  # TensorBoard removes what earlier files have from this iteration on
        yield _event(numbers.begun, session_log=SessionLog(status=SessionLog.START))
    values = [Summary.Value(tag=tag, simple_value=one.value) for one in numbers.samples if (tag := one.tag)]
    if values:
        yield _event(numbers.iteration, summary=Summary(value=values))
    for tag, content in numbers.texts.items():
        yield _event(numbers.iteration, summary=text(tag, _preformatted(content)))
    if numbers.nodes:
        yield _event(numbers.iteration, graph_def=_graph(numbers.nodes))
    for tag, png in numbers.pictures.items():
        if encoded := _made(tag, png):
            width, height = struct.unpack(">II", encoded[16:24])
            image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=encoded)
            yield _event(numbers.iteration, summary=Summary(value=[Summary.Value(tag=tag, image=image)]))


def _made(tag: str, png: Callable[[], bytes]) -> bytes:
    """Return a picture, b"" where it can't be made: the numbers must not be lost with it."""
    try:
        return png()
    except Exception as error:
        log.warning("tensorboard: the picture '%s' is left out: %s", tag, error)
        return b""


def _preformatted(text: str) -> str:
    """Return plain text as Markdown."""
    return "".join(f"    {line}\n" for line in text.splitlines())


def _graph(nodes: Sequence[Node]) -> bytes:
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.node_def_pb2 import NodeDef

    return bytes(GraphDef(node=[NodeDef(name=n.name, op=n.type, input=n.inputs) for n in nodes]).SerializeToString())
