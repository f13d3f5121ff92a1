"""CoreRate: the GFLOP/s of a large matrix product by oneDNN, in float32 and in bfloat16.

    python jobs/bench/core_rate.py

Whole iterations are compared with it. It is oneDNN's own product, not a BLAS, which environment variables slow down:
sgemm in float32, and in bfloat16 the inner product, with its weights in the layout that oneDNN chooses. One thread
computes it, or as many as OMP_NUM_THREADS says, as in the benchmarks that use it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np

from scaffe.engines.onednn import Onednn
from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.primitives import Memory, Primitive, reorder
from scaffe.errors import OnednnError

SIZE, TRIES = 2048, 7


class CoreRate:
    """A product of two square matrices in these numbers, "float32" or "bf16".

    Raise OnednnError where oneDNN is not installed, or the CPU can't compute in these numbers.
    """

    def __init__(self, numbers: str, size: int = SIZE):
        self.size, self.engine = size, Onednn(int(os.environ.get("OMP_NUM_THREADS", "1")), numbers)
        rng = np.random.default_rng(0)
        self._factors = [rng.standard_normal((size, size), np.float32) for _ in range(2)]
        self._product = np.empty((size, size), np.float32)
        self._run = self._sgemm if numbers == "float32" else self._inner_product().run

    def _sgemm(self) -> None:
        self.engine.gemm(*self._factors, self._product)

    def _inner_product(self) -> Primitive:
        engine, shape = self.engine, (self.size, self.size)
        x, w, y = engine.plain(shape, lib.BF16), engine.any(shape, lib.BF16), engine.plain(shape, lib.BF16)
        given = engine.handle, lib.FORWARD_INFERENCE, x, w, None, y, engine.attributes
        described = engine.describe("inner_product_forward", *given, shapes=shape)
        weights = described.desc(lib.QUERY_WEIGHTS, shape)
        memories = [Memory(engine, desc) for desc in (x, weights, y)]
        for memory, factor in zip(memories, self._factors, strict=False):
            reorder(Memory(engine, engine.plain(shape), factor), memory).run()
        arguments = zip((lib.ARG_SRC, lib.ARG_WEIGHTS, lib.ARG_DST), memories, strict=True)
        return Primitive(engine, described, dict(arguments))

    def once(self, clock: Callable[[], float] = time.perf_counter) -> float:
        """Return the GFLOP/s of one product."""
        self.engine.enter()  # with its threads
        start = clock()
        self._run()
        return 2e-9 * self.size**3 / max(clock() - start, 1e-9)

    def best(self, clock: Callable[[], float] = time.perf_counter) -> float:
        """Return the GFLOP/s of the fastest of TRIES products."""
        return max(self.once(clock) for _ in range(TRIES))


def core_rate(numbers: str) -> CoreRate | None:
    """Return the product in these numbers, None without oneDNN. Raise OnednnError where the CPU lacks them."""
    try:
        lib.load()
    except OnednnError:
        return None
    return CoreRate(numbers)


def main() -> None:
    """Print both rates."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for name in ("float32", "bf16"):
        try:
            product = core_rate(name)
            print(f"{name}: {product.best():.0f} GFLOP/s" if product else f"{name}: not by oneDNN here")
        except OnednnError as error:
            print(f"{name}: {error}")


if __name__ == "__main__":
    main()
