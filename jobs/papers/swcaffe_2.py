"""swCaffe, figure 2 and section III.A: the rate of copying against the size of blocks.

Here one core copies every other block of an array that no cache holds; on the chip 64 cores fetch blocks into their
scratchpads, each transfer after a latency of hundreds of cycles.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from conditions import seconds_of
from figure import ASSUMED, MODEL, OURS, PAPER, STATED, Check, Data, Figure, Input

SIZES = tuple(1 << k for k in range(6, 17))  # bytes of a block
NBYTES, ROUNDS = 128 << 20, 15  # copied at a time
WANTED = 2048  # bytes: section III.A, principle 3
CORES = 64


def copies(nbytes: int = NBYTES, rounds: int = ROUNDS) -> dict[int, list[float]]:
    """Return the bytes a second of each round by the size of blocks; the sizes take turns."""
    source, target = np.ones(nbytes // 2, np.float32), np.ones(nbytes // 4, np.float32)
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    for k in range(rounds + 1):
        for size in SIZES:
            width = size // 4
            there, here = source.reshape(-1, 2 * width)[:, :width], target.reshape(-1, width)
            (seconds,) = seconds_of(lambda here=here, there=there: np.copyto(here, there), 1)
            if k:
                found[size].append(nbytes / seconds)
    return found


class Blocks(Figure):
    """How large blocks must be."""

    id, rank = "swcaffe-2", 23
    title = "Rate of copying against the size of blocks"
    source = "swCaffe, figure 2, section III.A"
    paper = "28 GB/s at most on a core group; transfers of 2 KB and more, blocks of 256 bytes and more"
    inputs = (
        Input("core group: memory", 28e9, "bytes/s", STATED, "section III.A: where the rate saturates"),
        Input("clock", 1.45e9, "1/s", STATED, "section II.A"),
        Input("latency", 300, "cycles", ASSUMED, "section III.A: hundreds of cycles"),
        Input("wanted", WANTED, "bytes of a transfer", STATED, "section III.A, principle 3"),
    )
    unexplained = (
        "Rates by size are curves alone.",
        "Figure 2 is the chip's DMA. Here a core's own loads fetch the blocks: only the shape can be compared. The "
        "rate rises on past 2 KB, probably since the core fetches ahead once it is well inside a block.",
    )

    def measure(self) -> Data:
        """Return the bytes a second of the fastest round by size, as memory's rate is measured by custom (STREAM)."""
        return {"rates": [max(each) for each in copies().values()]}

    def rate(self, size: float) -> float:
        """Return the bytes a second of a core group whose cores wait for each transfer of so many bytes."""
        latency = self.value("latency") / self.value("clock")
        return CORES * size / (latency + CORES * size / self.value("core group: memory"))

    def model(self, measured: Data) -> Data:
        """Return the rate by size on a core group."""
        return {"rates": [self.rate(size) for size in SIZES]}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check that the rate rises to a plateau, which 2 KB reach and 64 bytes do not."""
        large = SIZES.index(WANTED)
        peak = self.value("core group: memory")
        yield Check("modelled: rate at 2 KB over where it saturates", modelled["rates"][large] / peak, low=0.8)
        yield Check("modelled: rate at 64 bytes over where it saturates", modelled["rates"][0] / peak, high=0.8)
        if measured:
            rates = measured["rates"]
            what = "measured: least rate at 2 KB and more over the best"
            yield Check(what, min(rates[large:]) / max(rates), low=0.8)
            yield Check("measured: rate at 64 bytes over the best", rates[0] / max(rates), high=0.8)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the rates at 64 bytes, at 2 KB, and the best."""
        texts = ["", ""]
        for k, found in enumerate((measured, modelled)):
            if found:
                rates = [1e-9 * found["rates"][i] for i in (0, SIZES.index(WANTED))]
                best = 1e-9 * max(found["rates"])
                texts[k] = f"64 bytes {rates[0]:.1f}, 2 KB {rates[1]:.1f}, best {best:.1f} GB/s"
        return texts[0], texts[1] and f"{texts[1]}, a latency assumed"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw rates over the best against the size."""
        axes = figure.subplots()
        peak = self.value("core group: memory")
        model = [rate / peak for rate in modelled["rates"]]
        axes.semilogx(SIZES, model, "--", color=MODEL, label="modelled, DMA of 64 cores, over 28 GB/s")
        if measured:
            best = max(measured["rates"])
            found = [rate / best for rate in measured["rates"]]
            axes.semilogx(SIZES, found, "o-", color=OURS, label=f"measured, one core, over {1e-9 * best:.1f} GB/s")
        axes.axvline(WANTED, color=PAPER, linestyle=":", label="paper: 2 KB and more")
        axes.set_xticks(SIZES, [f"{n} B" if n < 1024 else f"{n >> 10} KB" for n in SIZES])
        axes.minorticks_off()
        axes.set(xlabel="bytes of a block", ylabel="rate over the best", ylim=(0, 1.1))


FIGURE = Blocks()
