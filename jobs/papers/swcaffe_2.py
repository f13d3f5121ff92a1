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
WANTED, STRIDED = 2048, 256  # bytes of a transfer, and of a block with gaps: section III.A, principle 3
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
        Input("wanted, strided", STRIDED, "bytes of a block", STATED, "section III.A, principle 3"),
    )
    unexplained = (
        "Rates by size are curves alone.",
        "Figure 2 is the chip's DMA. Here a core's own loads fetch the blocks: only the shape can be compared. Blocks "
        "with gaps are to have 256 bytes there; here the rate rises on past 2 KB, probably since the core fetches "
        "ahead once it is well inside a block.",
        "With any latency of hundreds of cycles the model has 87 % and more at 2 KB, and 68 % and less at 64 bytes.",
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
        """Check that the rate rises to a plateau, which 2 KB reach and 64 bytes do not; here 256 bytes, with gaps.

        Any latency of hundreds of cycles has the model's: they are no evidence.
        """
        large = SIZES.index(WANTED)
        peak = self.value("core group: memory")
        what = "modelled: rate at {} over where it saturates"
        yield Check(what.format("2 KB"), modelled["rates"][large] / peak, low=0.8, fitted=True)
        yield Check(what.format("64 bytes"), modelled["rates"][0] / peak, high=0.8, fitted=True)
        if measured:
            rates = measured["rates"]
            for least, text in ((STRIDED, "256 bytes"), (WANTED, "2 KB")):
                what = f"measured: least rate at {text} and more over the best"
                yield Check(what, min(rates[SIZES.index(least) :]) / max(rates), low=0.8)
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
        axes.axvline(STRIDED, color="grey", linestyle=":", label="paper: 256 bytes and more, with gaps")
        axes.set_xticks(SIZES, [f"{n} B" if n < 1024 else f"{n >> 10} KB" for n in SIZES])
        axes.minorticks_off()
        axes.set(xlabel="bytes of a block", ylabel="rate over the best", ylim=(0, 1.1))


FIGURE = Blocks()
