"""Which kernel computes a pass, of those that can be built and whose workspace fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import numpy as np

from scaffe.choices import seconds
from scaffe.engines.cuda.layouts import BF16
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
    """Whether kernels compute the same: compares the result of each with that of the first.

    `result` is the array that they write, float32 or the bits of bfloat16; `tolerance` is the difference allowed, as a
    part of its largest magnitude. `buffers` returns their scratch memory, as bytes.
    """

    def __init__(self, xp: Any, result: Any, tolerance: float, buffers: Callable[[], Iterable[Any]]):
        self.xp, self.result, self.tolerance, self.buffers = xp, result, tolerance, buffers
        self.expected: Any = None
        self.scale = 0.0

    def spoil(self) -> None:
        """Write NaN into the result and all scratch memory, before a kernel runs."""
        for memory in (self.result.view(np.uint8), *self.buffers()):
            memory[...] = NAN_BYTE

    def distance(self) -> float:
        """Return how far the result is from the first one: 1 is the tolerance, NaN a result that has NaN."""
        result = self._values()
        if self.expected is None:
            self.expected = result.copy()
            self.scale = max(float(self.xp.absolute(self.expected).max()) * self.tolerance, 1e-30)
        return float(self.xp.absolute(result - self.expected).max()) / self.scale

    def _values(self) -> Any:
        """Return the result in float32."""
        if self.result.dtype != BF16:
            return self.result
        halves = self.xp.zeros((self.result.size, 2), BF16)
        halves[:, 1] = self.result.reshape(-1)
        return halves.view(np.float32)


def time(
    kernels: Iterable[K],
    limit: float,
    runner: Callable[[K], Callable[[], object]],
    measure: Callable[[Callable[[], object]], float],
    agreement: Agreement,
) -> dict[str, float]:
    """Return the seconds of fitting kernels by name, at most MOST of each variant, that of the default choice first.

    `runner` returns a function that runs a kernel once, `measure` the seconds of such a run. Of kernels of one name
    the first counts. Kernels are left out that fail, for which the device lacks memory, or whose result is not that of
    the first kernel.
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
            apart = agreement.distance()
            if not apart <= 1:
                log.warning("Plan: left out %s: its result is %.3g tolerances off the first plan's", kernel.name, apart)
                continue
            found[kernel.name] = seconds(run, min(found.values(), default=float("inf")), measure)
    return found
