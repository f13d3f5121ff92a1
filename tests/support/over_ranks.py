"""Nets as several ranks would build them, one after the other in one process, for layers that don't communicate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from google.protobuf import text_format

from scaffe.compute import Compute
from scaffe.context import TRAIN, Context
from scaffe.net.net import Net
from scaffe.proto import NetParameter

Passes = list[dict[str, np.ndarray]]


def net_of(text: str, **context) -> Net:
    """Build the net of a prototxt's text as the rank that the context says."""
    param = NetParameter()
    text_format.Parse(text, param)
    return Net(param, context=Context(**{"phase": TRAIN, "compute": Compute("reference"), **context}))


def run(net: Net, passes: int) -> Passes:
    """Return copies of all blobs after each forward pass."""
    results = []
    for _ in range(passes):
        net.forward()
        results.append({name: blob.data.copy() for name, blob in net.blobs.items()})
    return results


def together(
    text: str, size: int, passes: int, before: Callable[[Net], object] = lambda net: None, **context
) -> Passes:
    """Return what `size` ranks have in their blobs after each pass, their rows put together in order of the ranks."""
    ranks = []
    for rank in range(size):
        net = net_of(text, rank=rank, size=size, **context)
        before(net)
        ranks.append(run(net, passes))
        net.close()
    return [
        {name: np.concatenate([blobs[name] for blobs in one]) for name in one[0]} for one in zip(*ranks, strict=True)
    ]


def assert_same(ours: Passes, theirs: Passes) -> None:
    """Assert that two runs had the same bits in all blobs of all passes."""
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for name, values in mine.items():
            np.testing.assert_array_equal(values, other[name], name)
