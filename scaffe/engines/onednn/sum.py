"""Sums of blobs' values, for Eltwise and for the gradients of Split."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.blob import Values
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.plan import Inlet
from scaffe.engines.onednn.primitives import (
    Desc,
    Engine,
    Memory,
    NoFastForm,
    Primitive,
    PrimitiveDesc,
    floats,
    handles,
    passing,
)


class Sum:
    """Add values in one layout, each times its coefficient; with `slope` rectify the sum, if `can_rectify`.

    `gradient`: are they gradients, whose sum need not be kept?
    """

    def __init__(
        self, engine: Engine, desc: Desc, coeffs: Sequence[float], slope: float | None = None, gradient: bool = False
    ):
        self.inlets = [Inlet(engine, desc) for _ in coeffs]
        self.total = passing(engine, desc) if gradient else Memory(engine, desc)
        if can_rectify(coeffs):
            described, self.places = _binary(engine, desc, slope), [lib.ARG_SRC, lib.ARG_SRC_1]
        else:
            described, self.places = _sum(engine, desc, coeffs), [lib.ARG_MULTIPLE_SRC + k for k in range(len(coeffs))]
        self.run = Primitive(engine, described, {lib.ARG_DST: self.total})

    def of(self, parts: Sequence[Values]) -> Memory:
        """Return the sum, which the next call overwrites."""
        for place, inlet, values in zip(self.places, self.inlets, parts, strict=True):
            self.run.bind(place, inlet.fetch(values))
        self.total.taken()
        self.run.run()
        return self.total


def can_rectify(coeffs: Sequence[float]) -> bool:
    """Say whether a ReLU may be part of the sum: of two parts, neither of them scaled."""
    return list(coeffs) == [1, 1]


def best_layout(engine: Engine, desc: Desc, coeffs: Sequence[float]) -> Desc:
    """Return this layout, or the plain one where a sum is not fast with padded channels."""
    try:
        if not can_rectify(coeffs):
            _sum(engine, desc, coeffs)
        return desc
    except NoFastForm:
        return engine.plain(desc.shape)


def _sum(engine: Engine, desc: Desc, coeffs: Sequence[float]) -> PrimitiveDesc:
    count = len(coeffs)
    given = engine.handle, desc, count, floats(coeffs), handles([desc] * count), engine.attributes
    return engine.describe("sum", *given, shapes=desc.shape)


def _binary(engine: Engine, desc: Desc, slope: float | None) -> PrimitiveDesc:
    attributes = engine.attributes if slope is None else engine.rectifying(slope)
    return engine.describe("binary", engine.handle, lib.BINARY_ADD, desc, desc, desc, attributes, shapes=desc.shape)
