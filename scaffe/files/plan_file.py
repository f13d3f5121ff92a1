"""Files of choices: a line `work: way` for each; and the user's file of what was timed on a device."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from readers.files import read_input
from scaffe.errors import PlanError, SnapshotError
from scaffe.files.atomic import write_atomically
from scaffe.monitor.log import log

_LINE = re.compile(r"(?P<work>.+): (?P<way>[^:]+)")


def parse(lines: Iterable[str], source: str) -> dict[str, str]:
    """Return the choices of `lines`. Raise PlanError, naming `source`, for a line that is none."""
    taken = {}
    for number, line in enumerate(lines, 1):
        if not (found := _LINE.fullmatch(line.strip())):
            raise PlanError(f"{source}, line {number}: expected 'work: way', got '{line.strip()}'")
        taken[found["work"]] = found["way"]
    return taken


def read(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the choices of a file. Raise PlanError for a file that can't be read or is no plan."""
    try:
        return parse(read_input(path).decode().splitlines(), str(path))
    except OSError as error:
        raise PlanError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise PlanError(f"{path}: not a text file, so no plan") from None


def write(path: str | os.PathLike[str], taken: Mapping[str, str]) -> None:
    """Write choices into a file. Raise SnapshotError if that fails."""
    write_atomically(path, "".join(f"{work}: {way}\n" for work, way in taken.items()).encode())


class Kept:
    """The user's file of what was timed on one device with its libraries, which `machine` names; "" is no file.

    A user without a home has none, unless $XDG_CACHE_HOME names a folder.
    """

    def __init__(self, machine: str):
        folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        name = re.sub("[^A-Za-z0-9.]+", "-", machine)
        has_one = name and not folder.startswith("~")  # a user may have no home
        self.path = Path(folder) / "scaffe" / "plans" / f"{name}.txt" if has_one else None

    def read(self) -> dict[str, str]:
        """Return its choices, none where there is no file, or one that is no plan."""
        with suppress(PlanError):
            return read(self.path) if self.path else {}
        return {}

    def add(self, found: Mapping[str, str]) -> None:
        """Add choices; log where that fails. Of two runs that add at once one's may be lost."""
        if not self.path or not found:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write(self.path, self.read() | dict(found))
        except (OSError, SnapshotError) as error:
            log.info("Plan: not kept for other runs: %s", error)
