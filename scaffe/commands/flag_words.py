"""gflags' own flags: flags from files, flags from the environment, and unknown flags that are allowed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

from readers.errors import reason
from readers.files import read_input

# gflags' flags of this kind. Each is given a list, with commas.
SPECIAL = ("flagfile", "fromenv", "tryfromenv", "undefok")
PROGRAMS = ("scaffe", "caffe")  # that a section of a flag file can be for


class FlagError(Exception):
    """A flag of gflags' own that is wrong."""


def name_of(word: str) -> str:
    """Return the name of a flag, with hyphens, without dashes and value; "" for a word that is no flag."""
    given, _, _ = word.partition("=")
    return given.removeprefix("-").removeprefix("-").replace("_", "-") if given.startswith("-") else ""


def expand(words: Sequence[str], known: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """Return the words of a command line without gflags' own flags, and the flags that these leave out.

    A flag file and environment variables give their flags in the place of the flag that names them: of two flags of one
    name the later one counts. As in gflags, unknown flags of a file are left out, as are those that --undefok names.
    `known` says whether the command has a flag of that name. Raises FlagError for a file that can't be read, and for a
    variable that is not set.
    """
    found = list(_expanded(words, ()))
    allowed = {name for word in found if name_of(word) == "undefok" for name in _values(word)}
    kept: list[str] = []
    left_out: list[str] = []
    for word in found:
        name = name_of(word)
        if name == "undefok":
            continue
        unknown = bool(name) and not known(name)
        loose = isinstance(word, _FromFile) or name in allowed or name.removeprefix("no") in allowed
        (left_out if unknown and loose else kept).append(str(word))
    return kept, left_out


class _FromFile(str):
    """A word of a flag file."""


def _expanded(words: Sequence[str], files: tuple[str, ...]) -> Iterator[str]:
    """Yield the words, --undefok with them, and in place of the other flags of SPECIAL what they stand for.

    `files` are the flag files that the words come from, from the outermost to the innermost.
    """
    rest = iter(words)
    for word in rest:
        name = name_of(word)
        if name in SPECIAL and "=" not in word:
            value = next(rest, None)
            if value is None:
                raise FlagError(f"argument {word}: expected one argument")
            word = f"{word}={value}"
        if name == "flagfile":
            for path in _values(word):
                yield from map(_FromFile, _expanded(_flags_of(path, files), (*files, os.path.abspath(path))))
        elif name in ("fromenv", "tryfromenv"):
            yield from _expanded(list(_of_environment(_values(word), name == "fromenv")), files)
        else:
            yield word


def _values(word: str) -> list[str]:
    """Return the parts of a flag's value, names with hyphens; a file keeps its name."""
    parts = [part.strip() for part in word.partition("=")[2].split(",") if part.strip()]
    return parts if name_of(word) == "flagfile" else [part.replace("_", "-") for part in parts]


def _of_environment(names: Sequence[str], needed: bool) -> Iterator[str]:
    """Yield the flags whose values the variables FLAGS_name hold.

    Raises FlagError for an unset variable if `needed`, and for one of further variables.
    """
    for name in names:
        variable = f"FLAGS_{name.replace('-', '_')}"
        if name in ("fromenv", "tryfromenv"):
            raise FlagError(f"--fromenv {name}: a variable can't name further variables")
        if variable in os.environ:
            yield f"--{name}={os.environ[variable]}"
        elif needed:
            raise FlagError(f"--fromenv {name}: the environment has no {variable}")


def _flags_of(path: str, files: Sequence[str]) -> list[str]:
    """Return the flags in a file, one a line, that are for scaffe or for caffe.

    A line without a dash names programs, by patterns, to which the flags up to the next such line belong.
    """
    if os.path.abspath(path) in files:
        raise FlagError(f"--flagfile {path}: the file names itself")
    try:
        lines = [line.strip() for line in read_input(path).decode("utf-8-sig").splitlines()]
    except (OSError, ValueError) as error:
        raise FlagError(f"--flagfile {path}: {reason(error)}") from None
    flags: list[str] = []
    ours, naming = True, False
    for number, line in enumerate(lines, 1):
        if line.startswith("-"):
            if " " in line.partition("=")[0]:
                raise FlagError(f"{path}:{number}: expected --name=value, got '{line}'")
            flags += [line] if ours else []
            naming = False
        elif line and not line.startswith("#"):
            matches = any(fnmatchcase(program, pattern) for pattern in line.split() for program in PROGRAMS)
            ours = matches or (naming and ours)
            naming = True
    return flags
