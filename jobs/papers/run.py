"""Reproduce the papers' figures: measure, model, judge and draw; papers.sh starts it.

    python jobs/papers/run.py [--keep] [--list] [ID ...]

Writes, for each figure, jobs/papers/results/ID.json and docs/papers/ID.png, then docs/papers/*.md and the table of
README.md.
A figure that fails, or that this machine can't measure, keeps its former result, and the next one begins; the exit code
is then 1. The gate, which compares gradients, comes first: nothing else is measured while they differ. With --keep a
figure whose measurement is kept is not measured again, nor is what a slow model predicts made anew.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
import time
import traceback
from pathlib import Path

import beyond
import pages
from conditions import conditions
from drawing import picture
from figure import NOT_TRIED, Data, Figure, NotMeasurable, Untested, claims
from verdicts import NOT_TESTABLE, REPRODUCED

from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically

HERE = Path(__file__).resolve().parent
BEYOND = "beyond"  # a page of models alone
PICTURES, README = HERE.parents[1] / "docs/papers", HERE.parents[1] / "README.md"


def place(name: str) -> tuple[int, int, str]:
    """Return a figure's place in the order of papers, then of numbers."""
    paper, _, number = name.rpartition("-")
    return list(pages.TITLES).index(paper), len(number), number


def figures() -> dict[str, Figure]:
    """Return all figures by ID, in the order of the pages."""
    stems = [path.stem for path in HERE.glob("*.py")]
    files = [stem for stem in stems if re.fullmatch(r"\d+", stem.rpartition("_")[2])]
    found = {figure.id: figure for figure in (importlib.import_module(file).FIGURE for file in files)}
    names = sorted(claims().keys() - {NOT_TRIED}, key=place)
    return {name: found.get(name) or Untested(name) for name in names}


def measured(figure: Figure) -> Data:
    """Return what is kept of a figure: the measurement and its conditions; {} for a model alone."""
    before, start = conditions(), time.monotonic()
    found = figure.measure()
    return {**before, "seconds": round(time.monotonic() - start), "measured": found} if found else {}


def run(figure: Figure, keep: bool) -> pages.Shown:
    """Measure, model, judge and draw a figure; write what is kept and the picture."""
    before = pages.kept(figure.id)
    found = before if keep and before else measured(figure)
    here = found.get("measured", {})
    if figure.slow and not (keep and found.get("model")):
        found["model"] = figure.model(here)
    model = pages.modelled(figure, found)
    verdict = figure.judge(here, model)
    drawn = picture(figure, here, model) if verdict.verdict != NOT_TESTABLE else b""
    if found:
        write_atomically(pages.RESULTS / f"{figure.id}.json", text(found).encode())
    if drawn:
        write_atomically(PICTURES / f"{figure.id}.png", drawn)
    return pages.Shown(figure, found, verdict)


def text(found: Data) -> str:
    """Return what is kept as JSON, a line for each key."""
    rows = (f' "{key}": {json.dumps(value)}' for key, value in found.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main() -> int:
    """Run the figures; return 1 if one failed or the gradients differ."""
    known = figures()
    parser = argparse.ArgumentParser(prog="papers.sh", description=__doc__.splitlines()[0])
    names = [*known, BEYOND]
    parser.add_argument("ids", metavar="ID", nargs="*", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--keep", action="store_true", help="neither measure nor model what is kept")
    parser.add_argument("--list", action="store_true", help="print the IDs")
    a = parser.parse_args()
    if unknown := set(a.ids) - set(names):
        parser.exit(2, f"papers.sh: unknown figure '{min(unknown)}'; known: {' '.join(names)}\n")
    if a.list:
        print("\n".join(names), flush=True)
        return 0
    if barred := [folder for folder in (pages.RESULTS, PICTURES, README.parent) if not os.access(folder, os.W_OK)]:
        parser.exit(2, f"papers.sh: no permission to write in {barred[0]}, so nothing is measured\n")
    first = sorted(known.values(), key=lambda figure: not figure.is_gate)
    failed = 0
    for figure in first:
        name = figure.id
        if a.ids and name not in a.ids and not figure.is_gate:
            continue
        try:
            one = run(figure, a.keep or bool(a.ids and name not in a.ids))
        except Exception as error:
            if isinstance(error, (ScaffeError, NotMeasurable)):
                print(f"papers.sh: {name}: {error}", file=sys.stderr)
            else:
                traceback.print_exc()
            failed = 1
            if figure.is_gate:
                return failed
            continue
        if name in a.ids or not a.ids:
            print(f"{name}: {one.judged.verdict}: {figure.paper}; ours: {one.judged.ours}", flush=True)
        if figure.is_gate and one.judged.verdict != REPRODUCED:
            print("The gradients differ: nothing else is measured.")
            return 1
    if BEYOND in a.ids or not (a.ids or a.keep):
        beyond.model()
    pages.write(PICTURES, README, list(known.values()))
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ScaffeError as error:  # of a page
        sys.exit(f"papers.sh: {error}")
    except KeyboardInterrupt:
        print("papers.sh: interrupted; go on with --keep, or with the IDs that are left", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # before | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
