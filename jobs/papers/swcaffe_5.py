"""swCaffe, section V.B: readers of a file that is striped over 32 disk arrays.

Each of N readers takes 192 MB in a row, a mini-batch. The file lies in stripes of 256 MB dealt round-robin over the
arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from drawing import MODEL, OURS, PAPER, curves
from figure import ASSUMED, DERIVED, STATED, Data, Figure, Input, S
from verdicts import UNCLEAR, Judged

ARRAYS, UNIT = 32, 1 << 18  # disk arrays; bytes of a unit, which divides stripes, mini-batches and images
STRIPE, BATCH, IMAGES = 1024, 768, 256  # units of a stripe, of a mini-batch; images of a mini-batch
RECORD = BATCH // IMAGES  # units of an image
FILE = 1_281_167  # images of ImageNet
COUNTS, TRIALS = (32, 64, 128, 256, 512, 1024), 20  # readers; draws of random places
Piece = tuple[int, int]  # array, units


def pieces(start: int) -> Iterator[Piece]:
    """Yield the arrays and units of a mini-batch that begins at unit `start`, in their order."""
    end = start + BATCH
    while start < end:
        until = min(end, (start // STRIPE + 1) * STRIPE)
        yield start // STRIPE % ARRAYS, until - start
        start = until


def in_order(readers: int) -> list[int]:
    """Return the starts of mini-batches that follow each other."""
    return [k * BATCH for k in range(readers)]


def at_random(readers: int, random: Random) -> list[int]:
    """Return the starts of mini-batches at random images."""
    return [RECORD * random.randrange(FILE - IMAGES) for _ in range(readers)]


def most_readers(starts: Sequence[int]) -> int:
    """Return the readers of the array that has most."""
    return max(Counter(array for start in starts for array, _ in pieces(start)).values())


class Stripes(Figure):
    """How many readers meet at an array."""

    id, tag = "swcaffe-5", S
    inputs = (
        Input("arrays", ARRAYS, "", STATED, "section V.B"),
        Input("stripe", STRIPE * UNIT, "bytes", STATED, "section V.B: 256 MB"),
        Input("mini-batch", BATCH * UNIT, "bytes", STATED, "section V.B: 192 MB of 256 images"),
        Input("file", FILE * RECORD * UNIT, "bytes", DERIVED, "1,281,167 images of 0.75 MB"),
        Input("draws", TRIALS, "", ASSUMED, "of random places; the mean"),
    )

    def model(self, measured: Data) -> Data:
        """Return the most readers of an array by number of readers."""
        random = Random(1)
        draws = {n: [at_random(n, random) for _ in range(TRIALS)] for n in COUNTS}
        return {
            "in order": [most_readers(in_order(n)) for n in COUNTS],
            "at random": [sum(map(most_readers, draws[n])) / TRIALS for n in COUNTS],
        }

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Say what each reading of the sentence gives."""
        order, random = modelled["in order"][-1], modelled["at random"][-1]
        return Judged(UNCLEAR, f"{order:.0f} in order, {random:.0f} at random")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw readers of the busiest array against the number of readers."""
        axes.loglog(COUNTS, [2 * n / ARRAYS for n in COUNTS], "s:", color=PAPER, label="paper: at most N / 32 × 2")
        curves(
            axes, COUNTS, {way: modelled[way] for way in ("in order", "at random")}, (OURS, MODEL), label="counted, {}"
        )
        axes.plot(COUNTS, COUNTS, ":", color="grey", label="one array")
        axes.set(xlabel="readers", ylabel="readers of the busiest array")
        axes.set_xticks(COUNTS, [str(n) for n in COUNTS])
        axes.minorticks_off()


FIGURE = Stripes()
