"""Failures: what goes wrong while a layer computes, as its user is told: which layer, its shapes, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffe.errors import DeviceError, LabelError, OnednnError

if TYPE_CHECKING:
    from scaffe.net import Net


def told(net: Net, error: Exception, i: int) -> Exception:
    """Return an error of layer i's with what the net knows of it; the error itself where that is nothing."""
    if isinstance(error, LabelError):
        return error.located(net.origin(error.row))
    layer, gpu = net.layers[i], net.context.gpu
    name = f"layer '{layer.name}' ({layer.type})"
    bottoms, tops = ([blob.shape for blob in blobs] for blobs in (net.bottoms[i], net.tops[i]))
    if isinstance(error, OnednnError):
        return error.located(f"{name}, {bottoms} -> {tops}")
    text = gpu.explain(error) if gpu is not None else ""
    if not isinstance(error, MemoryError):
        return DeviceError(f"{name}: {text}") if text else error
    if text:
        return DeviceError(f"{name}, {bottoms} -> {tops}: {text}{_fit(net)}")
    return layer.shape_error(f"no memory for {bottoms} -> {tops}: {error or 'out of memory'}")


def _fit(net: Net) -> str:
    """Say which batch would fit where this one has no room; "" where that can't be told."""
    gpu, rows = net.context.gpu, net.context.local_rows
    if gpu is None or net.memory is None or not rows:
        return ""
    each, room = net.memory.needs(rows, gpu.free)
    batch = max(0, min(rows - 1, room // each))
    fits = f"a batch of about {batch} a rank would fit instead of {rows}" if batch else "not even one fits"
    return f"; at {each} bytes a sample, {fits}"
