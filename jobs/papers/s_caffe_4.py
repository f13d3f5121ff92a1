"""S-Caffe, section 4.1: readers in parallel, of one LMDB and of image files.

Processes each read a source of their own choice of records, decode and copy them into batches: the same JPEGs from an
LMDB and from files, and raw images of CIFAR-10's size from an LMDB. Files are in memory, so the readers and not a disk
are measured.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from drawing import curves
from figure import ASSUMED, MODEL, OTHER, OURS, STATED, Check, Data, Figure, Input

COUNTS, ROUNDS, SECONDS = (1, 2, 4, 8), 3, 1.5
LMDB, FILES, RAW = "JPEGs in an LMDB", "JPEG files", "raw 3 x 32 x 32 in an LMDB"
BATCHES = {LMDB: 16, FILES: 16, RAW: 100}  # records: a batch takes a small part of SECONDS
COLOURS = OURS, MODEL, OTHER
JPEGS = 256


def sources(folder: Path) -> dict[str, str]:
    """Write the sources; return their places by name."""
    import reading

    contents = reading.jpegs()
    reading.build(str(folder), contents)
    for i, content in enumerate(contents):
        (folder / f"{i}.jpg").write_bytes(content)
    names = (f"{folder}/{i % len(contents)}.jpg {i % 10}\n" for i in range(JPEGS))
    (folder / "files.txt").write_text("".join(names))
    return {LMDB: f"{folder}/jpeg", FILES: f"{folder}/files.txt", RAW: f"{folder}/cifar"}


class Readers(Figure):
    """The rate of reading against the number of readers."""

    id, rank = "s-caffe-4", 13
    title = "Readers in parallel: one LMDB and image files"
    source = "S-Caffe, sections 4.1 and 6.3"
    paper = "image files scale to any number of processes; LMDB degrades past 64 readers, on Lustre"
    inputs = (
        Input("readers of an LMDB", 64, "", STATED, "section 4.1: it does not scale for more"),
        Input("a source's records", JPEGS, "JPEGs", ASSUMED, "each reader reads all, again and again, from memory"),
    )
    unexplained = (
        "What fails past 64 readers is not said: 'severe degradation or race conditions'. LMDB's table of readers has "
        "126 places by default, and its lock file is shared, which Lustre must keep coherent. scaffe opens an LMDB "
        "without either. Neither Lustre, nor 64 cores, nor a disk's reads are here: this can't show the paper's claim.",
    )

    def measure(self) -> Data:
        """Return the records per second of all readers by source and number of readers, medians of rounds."""
        import reading

        rates: dict[str, list[list[float]]] = {name: [[] for _ in COUNTS] for name in BATCHES}
        with tempfile.TemporaryDirectory(prefix="scaffe-readers.", dir="/dev/shm") as folder:
            places = sources(Path(folder))
            turns = [(name, k) for name in BATCHES for k in range(len(COUNTS))]
            for turn in range(ROUNDS):  # they begin at either end, so that no count is always the later one
                for name, k in turns[:: (-1) ** turn]:
                    rates[name][k].append(reading.processes(places[name], COUNTS[k], SECONDS, BATCHES[name]))
        middle = {name: [median(one) for one in each] for name, each in rates.items()}
        return {"rates": middle, "cores": len(os.sched_getaffinity(0))}

    def model(self, measured: Data) -> Data:
        """Return the rates that cores allow: one reader's, times the readers, at most times the cores."""
        rates = measured.get("rates", {})
        return {name: [each[0] * min(n, measured["cores"]) for n in COUNTS] for name, each in rates.items()}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check that two readers are faster than one, and that more are not slower than two."""
        for name, each in measured.get("rates", {}).items():
            yield Check(f"{name}: 2 readers over 1", each[1] / each[0], low=1.5)
            yield Check(f"{name}: least of 4 and 8 readers over 2", min(each[2:]) / each[1], low=0.9)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the gains."""
        rates = measured.get("rates", {})
        texts = [f"{name} {a:.0f}, {b / a:.2f}x, {d / a:.2f}x" for name, (a, b, _, d) in rates.items()]
        return f"records/s of 1 reader, 2, 8: {'; '.join(texts)}", "as many times as cores"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the rate against readers, of JPEGs and of raw images."""
        panels = dict(zip(((LMDB, FILES), (RAW,)), figure.subplots(1, 2), strict=True))
        colours = dict(zip(BATCHES, COLOURS, strict=True))
        for names, axes in panels.items():
            rows = {name: measured["rates"][name] for name in names if measured}
            curves(axes, COUNTS, rows, map(colours.get, rows), "o-", "measured, {}")
            bound = {name: modelled[name] for name in rows}
            curves(axes, COUNTS, bound, map(colours.get, rows), ":", "{}, times cores")
            axes.set(xlabel="readers", ylabel="records/s, all readers", xticks=COUNTS, ylim=(0, None))


FIGURE = Readers()
