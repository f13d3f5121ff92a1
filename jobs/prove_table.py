"""The table of prove_on_gpu.sh: a line for each step, as text, Markdown and JSON, and the archive of a run."""

from __future__ import annotations

import json
import tarfile
import time
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

ARCHIVE = "proof.tar.gz"
KEPT = "table.txt", "table.md", "table.json", "logs", "cache/scaffe", "cache/cupy"  # what the archive holds


@dataclass
class Result:
    """A line of the table; `code` marks the command and the files that ran."""

    step: str
    result: str
    seconds: int
    figures: str
    when: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M"))
    code: str = ""


def text_table(results: list[Result]) -> str:
    """Return the table for a terminal."""
    width = max(len(one.step) for one in results)
    lines = [f"{one.step:{width}}  {one.result:8} {one.seconds:5d}  {one.figures}".rstrip() for one in results]
    return "\n".join([f"{'step':{width}}  {'result':8} {'s':>5}  figures", *lines, ""])


def markdown_table(results: list[Result]) -> str:
    """Return the table in Markdown."""
    cells = [(one.step, one.result, str(one.seconds), one.figures.replace("|", "\\|")) for one in results]
    rows = [("step", "result", "seconds", "figures"), ("---",) * 4, *cells]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def keep(out: Path, results: list[Result]) -> None:
    """Write the tables."""
    (out / "table.txt").write_text(text_table(results))
    (out / "table.md").write_text(markdown_table(results))
    (out / "table.json").write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")


def earlier(out: Path) -> dict[str, Result]:
    """Return the lines of an earlier run's table, by step."""
    try:
        return {one["step"]: Result(**one) for one in json.loads((out / "table.json").read_text())}
    except (OSError, ValueError, TypeError):
        return {}


def pack(out: Path) -> None:
    """Write the archive: tables, logs, and the caches of kernels and plans."""
    written = out / f"{ARCHIVE}.new"
    with tarfile.open(written, "w:gz") as archive:
        for name in KEPT:
            if (out / name).exists():
                archive.add(out / name, name)
    written.replace(out / ARCHIVE)


def unpack(out: Path) -> None:
    """Unpack the archive of an earlier run where its table is not there. Raise SystemExit for a broken archive."""
    if (out / "table.json").exists():
        return
    try:
        with suppress(FileNotFoundError), tarfile.open(out / ARCHIVE) as archive:
            safely = (
                {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            )  # not in the first Pythons of 3.10, 3.11
            archive.extractall(out, **safely)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        (out / "table.json").unlink(missing_ok=True)  # or the next run would go on from a part of it
        raise SystemExit(f"{out / ARCHIVE} can't be unpacked: {error}; copy it anew, or remove it") from None
