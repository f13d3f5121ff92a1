"""Failures: errors of a layer's computation as the user reads them: which layer, its shapes, what to do."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.blob import Blob
from scaffe.engine import Engine
from scaffe.errors import DeviceError, OnednnError
from scaffe.layers.layer import Layer


def located(error: Exception, layer: Layer, bottom: Sequence[Blob], top: Sequence[Blob], engine: Engine) -> Exception:
    """Return an error of a layer's pass with the layer, its shapes and the engine's advice; other errors unchanged."""
    name = f"layer '{layer.name}' ({layer.type})"
    bottoms, tops = ([blob.shape for blob in blobs] for blobs in (bottom, top))
    if isinstance(error, OnednnError):
        return error.located(f"{name}, {bottoms} -> {tops}")
    text = engine.explain(error)
    if not isinstance(error, MemoryError):
        return DeviceError(f"{name}: {text}") if text else error
    if not text:
        return layer.shape_error(f"no memory for {bottoms} -> {tops}: {error or 'out of memory'}")
    rows = layer.context.local_rows
    return DeviceError(f"{name}, {bottoms} -> {tops}: {text}{engine.room(rows) if rows else ''}")


def fullest(bottoms: Sequence[Sequence[Blob]], tops: Sequence[Sequence[Blob]]) -> int:
    """Return the number of the layer whose blobs have the most elements."""
    counts = [sum(blob.count for blob in (*bottom, *top)) for bottom, top in zip(bottoms, tops, strict=True)]
    return counts.index(max(counts))


def begin_pass(
    layers: Sequence[Layer], bottoms: Sequence[Sequence[Blob]], tops: Sequence[Sequence[Blob]], engine: Engine
) -> None:
    """Let an engine begin a pass. Without memory, the error names the layer whose blobs have the most elements."""
    try:
        engine.begin_pass()
    except MemoryError as error:
        i = fullest(bottoms, tops)
        raise located(error, layers[i], bottoms[i], tops[i], engine) from None
