"""Outputs: no command replaces one of its inputs, or a net, weights, a state or a database that it would not write.

Each command that writes a file asks here when it starts, before its work. An earlier output of the same kind, which is
known by its content, and an empty file are replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from glob import escape, glob

from google.protobuf.message import Message

from readers.errors import ReaderError
from readers.files import read_input
from scaffe.errors import ScaffeError
from scaffe.files.atomic import check_writable
from scaffe.proto import NetParameter, SolverParameter
from scaffe.proto.files import read_text
from scaffe.proto.kinds import HDF5, kind_of

Path = str | os.PathLike[str]


def check_output(what: str, path: Path, inputs: Sequence[Path | None] = (), own: Sequence[str] = ()) -> None:
    """Raise ScaffeError if no file can be written, or if it may not replace the one there. `what` says which output.

    It may not replace one of the `inputs`, by any of its names, or a file of one of the kinds of scaffe.proto.kinds but
    its `own`.
    """
    check_writable(what, path)
    check_replaced(what, path, inputs, own)


def check_replaced(what: str, path: Path, inputs: Sequence[Path | None] = (), own: Sequence[str] = ()) -> None:
    """Raise ScaffeError if the file at `path` may not be replaced, as `check_output` does."""
    if not os.path.isfile(path) or not os.path.getsize(path):
        return
    for one in inputs:
        if one and os.path.exists(one) and os.path.samefile(one, path):
            raise ScaffeError(f"{what} '{path}': is an input of this command, {one}; name another file")
    kind = kind_of(path)
    if kind and kind not in own:
        raise ScaffeError(f"{what} '{path}': is {kind}, which would be replaced; remove it, or name another file")


def check_distinct(**outputs: Path | None) -> None:
    """Raise ScaffeError if two outputs, by the names of their flags, are one file: each would replace the other."""
    seen: dict[object, str] = {}
    for name, path in outputs.items():
        if not path or (os.path.exists(path) and not os.path.isfile(path)):  # a device, a pipe
            continue
        file = os.stat(path) if os.path.exists(path) else None
        first = seen.setdefault((file.st_dev, file.st_ino) if file else os.path.realpath(path), name)
        if first != name:
            raise ScaffeError(f"{name} '{path}': is the file of {first}, too; name another file")


def check_run(inputs: Sequence[Path | None], plan: str = "", **outputs: Path | None) -> None:
    """Raise ScaffeError if a run's outputs, by the names of their flags, or its file of a plan, may not be written."""
    check_distinct(plan=plan, **outputs)
    inputs = [*inputs, os.environ.get("COLLECTIVES_TABLE")]
    for name, path in outputs.items():
        if path:
            check_output(name, path, inputs)
    if plan:
        check_replaced("plan", plan, inputs)


def net_files(paths: Iterable[str]) -> list[str]:
    """Return nets' prototxts, and the files that their layers read. What can't be read is left out."""
    found: list[str] = []
    for path in paths:
        found.append(path)
        try:
            found += sources(read_text(path, NetParameter))
        except ScaffeError:  # raised where the net is built
            continue
    return found


def sources(net: NetParameter) -> list[str]:
    """Return the files and databases that a net's layers read, with those that lists of HDF5 files name."""
    found = list(_named(net, ("source", "mean_file")))
    for one in [layer.hdf5_data_param.source for layer in net.layer if layer.type == "HDF5Data"]:
        try:
            found += map(os.fsdecode, read_input(one).split())
        except (OSError, ValueError, ReaderError):
            continue
    return found


def check_net(path: str, inputs: Sequence[Path | None], **outputs: Path | None) -> None:
    """Raise ScaffeError if a layer of the net in a prototxt would write one of the inputs, or another output."""
    try:
        names = list(_named(read_text(path, NetParameter), ("file_name",)))
    except ScaffeError:
        return
    for name in names:
        check_replaced("file_name", name, inputs, [HDF5])
        check_distinct(**outputs, file_name=name)


def check_snapshots(prefix: str, **outputs: Path | None) -> None:
    """Raise ScaffeError if an output, by the name of its flag, is a file of a prefix's snapshots, or their lock."""
    files = r"((_iter_\d+\.(caffemodel|solverstate)|_best\.caffemodel)(\.h5)?|\.lock)"
    name_of = re.compile(re.escape(os.path.realpath(prefix)) + files)
    for name, path in outputs.items():
        if path and name_of.fullmatch(os.path.realpath(path)):
            raise ScaffeError(f"{name} '{path}': is a file of this training's snapshots; name another file")


def replaced_by_snapshots(param: SolverParameter, weights: Iterable[str]) -> list[str]:
    """Return those of the weights that a training begins with which a snapshot of its own will replace.

    They are an earlier output of the same solver file, so that is no error.
    """
    written = re.compile(re.escape(param.snapshot_prefix) + r"_iter_(\d+)\.caffemodel(\.h5)?")
    own = []
    for found in filter(None, map(written.fullmatch, glob(f"{escape(param.snapshot_prefix)}_iter_*"))):
        at = int(found[1])
        due = param.snapshot and 0 < at <= param.max_iter and at % param.snapshot == 0
        if due or (param.snapshot_after_train and at == param.max_iter):
            own.append(found[0])
    return [one for one in weights if os.path.exists(one) and any(os.path.samefile(one, path) for path in own)]


def _named(message: Message, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the strings of a message, and of those in it, in fields of these names."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in [value] if isinstance(value, Message) else value:
                yield from _named(one, names)
        elif field.name in names:
            yield from [value] if isinstance(value, str) else value
