"""Weights and states without checksums, as Caffe writes them and as a program leaves them that edits their fields."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scaffe.proto import NetParameter, SolverState


def write(path: str | Path, message: NetParameter | SolverState) -> None:
    """Write weights or a state, binary, without checksums."""
    blobs = message.history if isinstance(message, SolverState) else [b for layer in message.layer for b in layer.blobs]
    for part in (message, *blobs):
        part.ClearField("checksum")
    message.ClearField("sealed")
    Path(path).write_bytes(message.SerializeToString())


@contextmanager
def editing(path: str | Path) -> Iterator[Any]:
    """Open weights or a state in HDF5 to be edited; their checksums are removed."""
    import h5py

    with h5py.File(path, "a") as file:
        file.attrs.pop("sealed", None)
        file.visititems(_drop_checksum)
        yield file


def _drop_checksum(name: str, item: Any) -> None:
    item.attrs.pop("checksum", None)
