"""SumPrimitive: sums of blobs' values by oneDNN's sum or binary addition, for Eltwise and Split."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.blob import Values
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.descriptors import Desc, NoFastForm, PrimitiveDesc, floats, handles
from scaffe.engines.onednn.operands import Operand
from scaffe.engines.onednn.pooled_memory import pooled
from scaffe.engines.onednn.primitives import Memory, Onednn, Primitive

MOST = 33  # operands of one addition: two, and oneDNN's 32 post-ops, of which a ReLU is one


class SumPrimitive:
    """Add values in one layout, each times its coefficient; with `slope` rectify the sum, if `can_rectify`.

    The sum of gradients (`gradient`) lies in a buffer of the engine's pool.
    """

    def __init__(
        self, engine: Onednn, desc: Desc, coeffs: Sequence[float], slope: float | None = None, gradient: bool = False
    ):
        self.operands = [Operand(engine, desc) for _ in coeffs]
        self.total = pooled(engine, desc) if gradient else Memory(engine, desc)
        self.places = _places(coeffs)
        self.run = Primitive(engine, _describe(engine, desc, coeffs, slope), {lib.ARG_DST: self.total})

    def of(self, parts: Sequence[Values]) -> Memory:
        """Return the sum; the next call overwrites it."""
        for place, operand, values in zip(self.places, self.operands, parts, strict=True):
            self.run.bind(place, operand.fetch(values))
        self.total.acquire()
        self.run.run()
        return self.total


def can_rectify(coeffs: Sequence[float]) -> bool:
    """Return whether a ReLU can be fused with the sum: of up to MOST operands, all with coefficient 1."""
    return 2 <= len(coeffs) <= MOST and all(coeff == 1 for coeff in coeffs)


def _places(coeffs: Sequence[float]) -> list[int]:
    """Return the arguments that the operands are."""
    if not can_rectify(coeffs):
        return [lib.ARG_MULTIPLE_SRC + k for k in range(len(coeffs))]
    further = [lib.ARG_POST_OP * (k + 1) | lib.ARG_SRC_1 for k in range(len(coeffs) - 2)]
    return [lib.ARG_SRC, lib.ARG_SRC_1, *further]


def best_layout(engine: Onednn, desc: Desc, coeffs: Sequence[float]) -> Desc:
    """Return `desc`, or the plain layout where oneDNN's sum is not fast in it, as with padded channels or SSE4.1."""
    try:
        _describe(engine, desc, coeffs)
        return desc
    except NoFastForm:
        return engine.plain(desc.shape, desc.kind)


def _describe(engine: Onednn, desc: Desc, coeffs: Sequence[float], slope: float | None = None) -> PrimitiveDesc:
    """Return oneDNN's sum, or its binary addition where a ReLU can follow. Raise NoFastForm where it is not fast.

    Of more than two operands the sum is no vector code in float32; further ones are added in the same pass.
    """
    count = len(coeffs)
    if can_rectify(coeffs):
        attributes = engine.summing([desc] * (count - 2), slope)
        return engine.describe("binary", engine.handle, lib.BINARY_ADD, *[desc] * 3, attributes, shapes=desc.shape)
    given = engine.handle, desc, count, floats(coeffs), handles([desc] * count), engine.attributes
    return engine.describe("sum", *given, shapes=desc.shape)
