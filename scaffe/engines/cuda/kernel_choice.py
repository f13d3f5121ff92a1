"""Which kernel computes a pass, of those that can be built and whose workspace fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol, TypeVar

from scaffe.choices import seconds
from scaffe.errors import CudnnError


class Kernel(Protocol):
    """A candidate: its name and, once built, the bytes of its workspace."""

    @property
    def name(self) -> str: ...

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


def time(
    kernels: Iterable[K],
    limit: float,
    runner: Callable[[K], Callable[[], object]],
    measure: Callable[[Callable[[], object]], float],
) -> dict[str, float]:
    """Return the seconds of each fitting kernel by name, that of the default choice first.

    `runner` returns a function that runs a kernel once, `measure` the seconds of such a run. Of kernels of one name
    the first counts. Kernels that fail, or for which the device lacks memory, are left out.
    """
    found: dict[str, float] = {}
    for kernel in fitting(kernels, limit):
        if kernel.name not in found:
            best = min(found.values(), default=float("inf"))
            with suppress(MemoryError, CudnnError):
                found[kernel.name] = seconds(runner(kernel), best, measure)
    return found
