"""swCaffe, section V.B: readers of a file that is striped over 32 disk arrays.

Each of N readers takes 192 MB in a row, a mini-batch. The file lies on one array, or in stripes of 256 MB dealt
round-robin over 32. Readers of an array are counted exactly; the time is that of a queue at each array, which serves
one request after the other, and of readers that ask for their second piece when they have the first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

from figure import ASSUMED, DERIVED, MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, within

ARRAYS, UNIT = 32, 1 << 18  # disk arrays; bytes of a unit, which divides stripes, mini-batches and images
STRIPE, BATCH, IMAGES = 1024, 768, 256  # units of a stripe, of a mini-batch; images of a mini-batch
RECORD = BATCH // IMAGES  # units of an image
FILE = 1_281_167  # images of ImageNet
COUNTS, TRIALS = (32, 64, 128, 256, 512, 1024), 20  # readers; draws of random places
Piece = tuple[int, int]  # array, units


def pieces(start: int, arrays: int = ARRAYS) -> Iterator[Piece]:
    """Yield the arrays and units of a mini-batch that begins at unit `start`, in their order."""
    end = start + BATCH
    while start < end:
        until = min(end, (start // STRIPE + 1) * STRIPE) if arrays > 1 else end
        yield start // STRIPE % arrays, until - start
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


def makespan(starts: Sequence[int], arrays: int = ARRAYS) -> float:
    """Return when the last reader has its mini-batch, in the times in which an array reads one."""
    free = [0.0] * arrays
    asked = [(0.0, k, list(pieces(start, arrays))) for k, start in enumerate(starts)]  # when, reader, what is left
    heapq.heapify(asked)
    last = 0.0
    while asked:
        now, k, (first, *left) = heapq.heappop(asked)
        array, units = first
        free[array] = done = max(now, free[array]) + units / BATCH
        last = max(last, done)
        if left:
            heapq.heappush(asked, (done, k, left))
    return last


class Stripes(Figure):
    """How many readers meet at an array."""

    id, rank = "swcaffe-5", 22
    title = "Readers of a striped file, by array"
    source = "swCaffe, section V.B"
    paper = "a reader meets at most two arrays; N / 32 x 2 readers of an array at most"
    inputs = (
        Input("arrays", ARRAYS, "", STATED, "section V.B"),
        Input("stripe", STRIPE * UNIT, "bytes", STATED, "section V.B: 256 MB"),
        Input("mini-batch", BATCH * UNIT, "bytes", STATED, "section V.B: 192 MB of 256 images"),
        Input("AlexNet", 94.17, "images/s of a node", STATED, "table III"),
        Input("file", FILE * RECORD * UNIT, "bytes", DERIVED, "1,281,167 images of 0.75 MB"),
        Input("queue", 1, "request at a time", ASSUMED, "an array serves requests in the order in which they come"),
    )
    unexplained = (
        "N / 32 x 2 is a mean: the 2 N pieces over 32 arrays. As a bound it holds for readers in order; the paper's "
        "readers draw at random, and the busiest array then has more than the mean.",
        "Three quarters of the mini-batches meet two arrays, a quarter one: the mean is N / 32 x 1.75.",
        "The paper has no rate of its arrays, and no reading time. A wait for input grows with the batch, while the "
        "1.0 to 1.2 s beyond computing in figure 10 hardly do (swcaffe-10): they can't be reading.",
    )

    def model(self, measured: Data) -> Data:
        """Return the arrays of a reader, the most readers of an array and the makespans, by number of readers."""
        period = [RECORD * k for k in range(STRIPE * ARRAYS)]
        met = [len(list(pieces(start))) for start in period]
        random = Random(1)
        draws = {n: [at_random(n, random) for _ in range(TRIALS)] for n in COUNTS}
        return {
            "arrays": [max(met), sum(met) / len(met)],
            "readers": {
                "in order": [most_readers(in_order(n)) for n in COUNTS],
                "at random": [sum(map(most_readers, draws[n])) / TRIALS for n in COUNTS],
            },
            "times": {
                "one array": [makespan(in_order(n), arrays=1) for n in COUNTS],
                "in order": [makespan(in_order(n)) for n in COUNTS],
                "at random": [sum(map(makespan, draws[n])) / TRIALS for n in COUNTS],
            },
        }

    def needed(self) -> float:
        """Return the bytes a second that 1,024 nodes read while they train AlexNet."""
        return COUNTS[-1] * self.value("AlexNet") * RECORD * UNIT

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the bound on an array's readers, and what stripes gain.

        A mini-batch is less than a stripe, and one array reads one after the other: such checks are no evidence.
        """
        most, mean = modelled["arrays"]
        yield Check("arrays of a reader, most over all places", most, 2, 2, fitted=True)
        bound = [2 * n / ARRAYS for n in COUNTS]
        yield Check("readers of an array over N / 32 x 2, mean over all places", mean / 2, high=1.0, fitted=True)
        for way, found in modelled["readers"].items():
            what = f"most readers of an array over N / 32 x 2, {way}, {COUNTS[0]} to {COUNTS[-1]} readers"
            yield Check(what, max(n / limit for n, limit in zip(found, bound, strict=True)), high=1.0)
        one, *striped = (times[-1] for times in modelled["times"].values())
        what = "time on one array, mini-batches of all readers one after the other"
        yield within(what, one, COUNTS[-1], 0.0, fitted=True)
        for way, found in zip(("in order", "at random"), striped, strict=True):
            yield Check(f"one array's time over that of stripes, {way}, {COUNTS[-1]} readers", one / found, low=16)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the readers of the busiest array, and what stripes gain."""
        order, random = (found[-1] for found in modelled["readers"].values())
        one, *striped = (times[-1] for times in modelled["times"].values())
        gains = " and ".join(f"{one / found:.0f}x" for found in striped)
        text = f"1,024 readers: {order:.0f} at an array in order, {random:.0f} at random (64 by the paper); "
        return "", text + f"{gains} as fast as one array; AlexNet needs {1e-9 * self.needed():.0f} GB/s"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw readers of the busiest array, and times, against the number of readers."""
        left, right = figure.subplots(1, 2)
        left.loglog(COUNTS, [2 * n / ARRAYS for n in COUNTS], ":", color=PAPER, label="paper: N / 32 x 2")
        colours = {"one array": OTHER, "in order": OURS, "at random": MODEL}
        for way, found in modelled["readers"].items():
            left.plot(COUNTS, found, "o--", color=colours[way], label=f"counted, {way}")
        for way, found in modelled["times"].items():
            right.loglog(COUNTS, found, "o--", color=colours[way], label=f"modelled, {way}")
        left.plot(COUNTS, COUNTS, "o--", color=OTHER, label="one array")
        left.set(xlabel="readers", ylabel="readers of the busiest array")
        right.set(xlabel="readers", ylabel="time until all have a mini-batch, in\ntimes of one mini-batch at one array")
        for axes in (left, right):
            axes.set_xticks(COUNTS, [str(n) for n in COUNTS])
            axes.minorticks_off()


FIGURE = Stripes()
