"""Detection of weights and solver states that have changed since they were written, and of the damaged blob."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from scaffe.errors import PrototxtError
from scaffe.proto import BlobProto, NetParameter, SolverState, blobs, checksums

N = TypeVar("N", NetParameter, SolverState)
Path = str | os.PathLike[str]
Decode = Callable[[bytes, Path], N]


def unchanged(content: bytes, path: Path, decode: Decode[N]) -> N:
    """Decode the content of the file `path`. Raise PrototxtError if it has changed since it was written.

    Files without a seal, as Caffe writes them, are not checked; nor are those that a program wrote by protobuf, with a
    seal that it has read.
    """
    whole = checksums.is_whole(content)
    if whole is False and not _written_by_protobuf(content):
        raise _changed(path, _place(content, path, decode))
    message = decode(content, path)
    if whole is None and message.sealed:
        raise _changed(path, "its end is missing or damaged")
    return message


def _written_by_protobuf(content: bytes) -> bool:
    """Return whether the seal follows the field `sealed`, since protobuf orders fields by number; we write it first."""
    seal = content[-checksums.LENGTH :].decode("latin-1")
    return any(
        content.endswith(kind(sealed=True, checksum=seal).SerializeToString()) for kind in (NetParameter, SolverState)
    )


def _changed(path: Path, place: str) -> PrototxtError:
    remedy = "copy it again, or go back to an older snapshot, as --snapshot auto does"
    return PrototxtError(f"{path}: damaged, or changed by another program ({place}): {remedy}")


def _place(content: bytes, path: Path, decode: Decode[N]) -> str:
    """Return where the content of a file was damaged, as far as it can be determined, for an error message."""
    try:
        damaged = [label for label, blob in _stored(decode(content, path)) if blobs.is_damaged(blob)]
    except Exception as error:  # a decoder may raise any error on damaged content
        return " ".join(str(error).removeprefix(f"{path}: ").split()) or type(error).__name__
    return damaged[0] if damaged else "outside its blobs"


def _stored(message: NetParameter | SolverState) -> Iterator[tuple[str, BlobProto]]:
    """Yield the blobs of weights or of a solver state, with their names for messages."""
    if isinstance(message, SolverState):
        yield from ((f"history blob {i}", blob) for i, blob in enumerate(message.history))
        yield from ((f"residual blob {i}", blob) for i, blob in enumerate(message.residual))
        return
    for layer in message.layer:  # the old field `layers` has no checksums
        yield from ((f"layer '{layer.name}', blob {i}", blob) for i, blob in enumerate(layer.blobs))
