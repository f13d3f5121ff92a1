"""Which kernel computes a pass, of those that can be built and whose workspace fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from math import isnan
from typing import Any, Protocol, TypeVar

import numpy as np

from scaffe.devices.choices import seconds
from scaffe.engines.cuda.column_passes import float32_of
from scaffe.errors import CudnnError
from scaffe.monitor.log import log

NAN_BYTE = 0xFF  # numbers of such bytes are NaN in float32 and in bfloat16
MOST = 8  # kernels of a variant that are timed, in the library's order


class Kernel(Protocol):
    """A candidate: its name, the variant of the work that it does and, once built, the bytes of its workspace."""

    @property
    def name(self) -> str: ...

    @property
    def variant(self) -> Hashable: ...

    @property
    def nbytes(self) -> int: ...

    def build(self) -> bool:
        """Compile it; return whether that succeeded."""
        ...


K = TypeVar("K", bound=Kernel)


def fitting(kernels: Iterable[K], limit: float) -> Iterator[K]:
    """Build the kernels one by one; yield those that could be built and need at most `limit` bytes of workspace."""
    for kernel in kernels:
        if kernel.build() and kernel.nbytes <= limit:
            yield kernel


def choose(kernels: Iterable[K], name: str, limit: float) -> K | None:
    """Return the kernel of that name if it fits, else the first that fits, None where none does."""
    kernels, others = iter(kernels), []
    for kernel in kernels if name else ():
        if kernel.name == name and (found := next(fitting([kernel], limit), None)):
            return found
        others.append(kernel)
    return next(fitting([*others, *kernels] if name else kernels, limit), None)


class Agreement:
    """Whether kernels compute what a reference does.

    `result` is the array that they write, float32 or the bits of bfloat16; `expected` what it should be, in float32;
    `tolerance` the difference allowed, as a part of its largest magnitude. `buffers` returns their scratch memory, as
    bytes. `wrong` counts the kernels that did not agree. Where `operand` is given, NaN in that array must reach the
    result: a ReLU that makes it 0 would hide a net that has diverged.
    """

    def __init__(
        self,
        xp: Any,
        result: Any,
        expected: Any,
        tolerance: float,
        buffers: Callable[[], Iterable[Any]],
        operand: Any = None,
    ):
        self.xp, self.result, self.expected, self.buffers, self.operand = xp, result, expected, buffers, operand
        self.scale = max(float(xp.absolute(expected).max()) * tolerance, 1e-30)
        self.wrong = 0

    def spoil(self) -> None:
        """Write NaN into the result and all scratch memory, before a kernel runs."""
        for memory in (self.result.view(np.uint8), *self.buffers()):
            memory[...] = NAN_BYTE

    def distance(self) -> float:
        """Return how far the result is from what is expected: 1 is the tolerance, NaN a result that has NaN."""
        return float(self.xp.absolute(float32_of(self.xp, self.result) - self.expected).max()) / self.scale

    def agrees(self, name: str) -> bool:
        """Return whether the result of a kernel is right; log and count one that is not."""
        apart = self.distance()
        if not apart <= 1:
            self.wrong += 1
            log.warning("Plan: left out %s: its result is %.3g tolerances off that of columns", name, apart)
        return apart <= 1

    def passes_nan(self, run: Callable[[], object]) -> bool:
        """Return whether a kernel, run again, passes on the NaN of the operand."""
        if self.operand is None:
            return True
        kept = self.operand.copy()
        self.operand.view(np.uint8)[...] = NAN_BYTE
        run()
        self.operand[...] = kept
        return isnan(self.distance())


def time(
    kernels: Iterable[K],
    limit: float,
    runner: Callable[[K], Callable[[], object]],
    measure: Callable[[Callable[[], object]], float],
    agreement: Agreement,
) -> dict[str, float]:
    """Return the seconds of fitting kernels by name, at most MOST of each variant, that of the default choice first.

    `runner` returns a function that runs a kernel once, `measure` the seconds of such a run. Of kernels of one name
    the first counts. Kernels are left out that fail, for which the device lacks memory, that do not agree, or that
    lose NaN.
    """
    found: dict[str, float] = {}
    timed = Counter[Hashable]()
    for kernel in kernels:
        if timed[kernel.variant] == MOST or kernel.name in found or not [*fitting([kernel], limit)]:
            continue
        timed[kernel.variant] += 1
        with suppress(MemoryError, CudnnError):
            run = runner(kernel)
            agreement.spoil()
            run()
            if agreement.agrees(kernel.name) and agreement.passes_nan(run):
                found[kernel.name] = seconds(run, min(found.values(), default=float("inf")), measure)
    return found
