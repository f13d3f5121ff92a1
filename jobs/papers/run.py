"""Reproduce the papers' figures: measure, model, check and draw; papers.sh starts it.

    python jobs/papers/run.py [--keep] [--list] [ID ...]

Writes, for each figure, scaffe/papers/ID.json and docs/papers/ID.png, then the pages docs/papers/*.md and the table of
README.md from all results.
A figure that fails keeps its former result, and the next one begins; the exit code is then 1. The gate, which compares
gradients, comes first: nothing else is measured while they differ. With --keep a figure whose measurement is
kept is not measured again.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import re
import sys
import time
import traceback
from pathlib import Path

import pages
from conditions import conditions
from drawing import legends
from figure import Data, Figure, NotMeasurable, result
from numa_caffe_8 import GATE

from scaffe.atomic import write_atomically
from scaffe.errors import ScaffeError
from scaffe.papers import FOLDER, REPRODUCED, lines, place

HERE = Path(__file__).resolve().parent
PICTURES, README = HERE.parents[1] / "docs/papers", HERE.parents[1] / "README.md"
PAPERS = ("beyond", "numa-caffe", "parax", "s-caffe", "singlecaffe", "swcaffe")


def figures() -> dict[str, Figure]:
    """Return all figures by ID, in the order in which they run."""
    files = [path.stem for path in sorted(HERE.glob("*.py")) if path.stem.replace("_", "-").startswith(PAPERS)]
    found = [importlib.import_module(file).FIGURE for file in files]
    return {figure.id: figure for figure in sorted(found, key=lambda figure: figure.rank)}


def measured(figure: Figure) -> Data:
    """Return what a figure's result keeps: the measurement and its conditions, or the reason why there is none."""
    before, start = conditions(), time.monotonic()
    try:
        found: Data = {"measured": figure.measure()}
    except NotMeasurable as error:
        return {"why": str(error)}
    return found | {"seconds": round(time.monotonic() - start), **before}


def picture(figure: Figure, found: Data) -> bytes:
    """Return the figure's picture as PNG."""
    from matplotlib.figure import Figure as Picture

    drawn = Picture(figsize=(9, 3.8), layout="constrained")
    kept = found["kept"].get("measured", {})
    figure.draw(drawn, kept, found["model"] if figure.slow else figure.model(kept))
    legends(drawn.axes)
    for axes in drawn.axes:
        axes.spines[["top", "right"]].set_visible(False)
    content = io.BytesIO()
    drawn.savefig(content, format="png", dpi=110, metadata={"Software": None})
    return content.getvalue()


def run(figure: Figure, keep: bool) -> Data:
    """Measure, model, check, draw and write a figure; return its result."""
    file = FOLDER / f"{figure.id}.json"
    kept = json.loads(file.read_text())["kept"] if keep and file.exists() else measured(figure)
    found = result(figure, kept)
    drawn = picture(figure, found)
    write_atomically(file, text(found).encode())
    write_atomically(PICTURES / f"{figure.id}.png", drawn)
    return found


def text(found: Data) -> str:
    """Return a result as JSON, each list of numbers in one line."""
    rows = re.compile(r"\[\s+([-\d.eE+]+(?:,\s+[-\d.eE+]+)*)\s+\]")
    return rows.sub(lambda row: f"[{' '.join(row[1].split())}]", json.dumps(found, indent=1)) + "\n"


def differ(found: Data) -> bool:
    """Return whether the gate's result has gradients that differ, or none."""
    verdicts = [check["verdict"] for check in found["checks"] if check["what"].startswith(GATE)]
    return set(verdicts) != {REPRODUCED}


def main() -> int:
    """Run the figures; return 1 if one failed or the gradients differ."""
    known = figures()
    parser = argparse.ArgumentParser(prog="papers.sh", description=__doc__.splitlines()[0])
    parser.add_argument("ids", metavar="ID", nargs="*", help=f"of {', '.join(sorted(known, key=place))} (default: all)")
    parser.add_argument("--keep", action="store_true", help="do not measure what is kept")
    parser.add_argument("--list", action="store_true", help="print the IDs")
    a = parser.parse_args()
    if unknown := set(a.ids) - set(known):
        names = " ".join(sorted(known, key=place))
        parser.exit(2, f"papers.sh: unknown figure '{min(unknown)}'; known: {names}\n")
    if a.list:
        print("\n".join(known), flush=True)
        return 0
    if barred := [folder for folder in (FOLDER, PICTURES) if not os.access(folder, os.W_OK)]:
        parser.exit(2, f"papers.sh: no permission to write in {barred[0]}, so nothing is measured\n")
    gate = next(iter(known))
    chosen = [one for one in known if not a.ids or one in a.ids or one == gate]
    failed = 0
    for name in chosen:
        try:
            found = run(known[name], a.keep or (name == gate and name not in a.ids and bool(a.ids)))
        except Exception as error:
            if isinstance(error, ScaffeError):
                print(f"papers.sh: {name}: {error}", file=sys.stderr)
            else:
                traceback.print_exc()
            failed = 1
            if name == gate:
                return failed
            continue
        if name in a.ids or not a.ids:
            print("\n".join(list(lines([found]))[:-1]), flush=True)
        if name == gate and differ(found):
            print("The gradients differ: nothing else is measured.")
            return 1
    pages.write(PICTURES, README, [figure.id for figure in known.values()])
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("papers.sh: interrupted; go on with --keep, or with the IDs that are left", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # before | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
