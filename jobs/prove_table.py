"""The table of prove_on_gpu.sh: a line for each step, as text, Markdown and JSON, and the archive of a run.

Below the lines text and Markdown say what all of them say of PyTorch's forms (prove_verdicts.py).
"""

from __future__ import annotations

import io
import json
import tarfile
import time
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from prove_verdicts import verdicts

ARCHIVE = "proof.tar.gz"
TABLES = "table.txt", "table.md", "table.json"
KEPT = *TABLES, "logs", "cache/scaffe", "cache/cupy"  # what the archive holds


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
    """Return the table for a terminal, with the verdicts."""
    width = max(len(one.step) for one in results)
    lines = [f"{one.step:{width}}  {one.result:8} {one.seconds:5d}  {one.figures}".rstrip() for one in results]
    return "\n".join([f"{'step':{width}}  {'result':8} {'s':>5}  figures", *lines, *verdicts(results), ""])


def markdown_table(results: list[Result]) -> str:
    """Return the table in Markdown, with the verdicts."""
    cells = [(one.step, one.result, str(one.seconds), one.figures.replace("|", "\\|")) for one in results]
    rows = [("step", "result", "seconds", "figures"), ("---",) * 4, *cells]
    said = [f"\n{one}\n" for one in verdicts(results)]
    return "".join([*(f"| {' | '.join(row)} |\n" for row in rows), *said])


def keep(work: Path, results: list[Result]) -> None:
    """Write the tables."""
    text = json.dumps([asdict(one) for one in results], indent=1) + "\n"
    for name, table in zip(TABLES, (text_table(results), markdown_table(results), text), strict=True):
        _replace(work / name, table.encode())


def _replace(path: Path, content: bytes) -> None:
    """Write a file beside, and rename it, so that it is whole at any moment."""
    written = path.with_name(f"{path.name}.new")
    written.write_bytes(content)
    written.replace(path)


def earlier(out: Path) -> dict[str, Result]:
    """Return the lines of an earlier run's table, by step."""
    try:
        return {one["step"]: Result(**one) for one in json.loads((out / "table.json").read_text())}
    except (OSError, ValueError, TypeError):
        return {}


def pack(work: Path, out: Path) -> None:
    """Write the archive: tables, logs, and the caches of kernels and plans. Copy it and the tables to `out`."""
    written = work / f"{ARCHIVE}.new"
    with tarfile.open(written, "w:gz", compresslevel=1) as archive:
        for path in sorted(path for name in KEPT for path in (work / name, *(work / name).rglob("*"))):
            with suppress(OSError):  # a step that runs may remove it
                if path.is_file():
                    _add(archive, path, path.relative_to(work))
    written.replace(work / ARCHIVE)
    for name in (*TABLES, ARCHIVE) if out.resolve() != work.resolve() else ():
        if (work / name).exists():
            _replace(out / name, (work / name).read_bytes())


def _add(archive: tarfile.TarFile, path: Path, name: Path) -> None:
    """Add a file as it is now: a step that runs may go on writing into it."""
    content, info = path.read_bytes(), tarfile.TarInfo(str(name))
    info.size, info.mtime = len(content), int(path.stat().st_mtime)
    archive.addfile(info, io.BytesIO(content))


def unpack(work: Path, out: Path) -> None:
    """Unpack the archive of an earlier run, of `work` or else `out`, into `work` where there is no table.

    Raise SystemExit for a broken archive.
    """
    packed = next((place / ARCHIVE for place in (work, out) if (place / ARCHIVE).exists()), None)
    if (work / "table.json").exists() or packed is None:
        return
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not in the first Pythons of 3.10, 3.11
    try:
        with tarfile.open(packed) as archive:
            archive.extractall(work, **safely)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        (work / "table.json").unlink(missing_ok=True)  # or the next run would go on from a part of it
        raise SystemExit(f"{packed} can't be unpacked: {error}; copy it anew, or remove it") from None
