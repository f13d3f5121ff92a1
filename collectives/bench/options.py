"""The benchmark's command line: the options of the OSU microbenchmarks 7, and ours. An error is one line."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NoReturn

from collectives.bench.derived import FORMS, Derived, read_derived
from collectives.bench.latency_graph import FILES, TTY, file_of
from collectives.errors import ArgumentError
from collectives.schedules.algorithms import every_name
from collectives.tuning.table import DEVICE, is_device
from collectives.verbs import ALLGATHER, BCAST, REDUCE, SCHEDULED

BLOCKING = tuple(SCHEDULED)
CHAR, ALL = "mpi_char", "all"
TYPES = {CHAR: "uint8", "mpi_int": "int32", "mpi_float": "float32"}
LEAST_LIMIT, LIMIT = 1 << 20, 1 << 29  # bytes: the lowest and the default limit of a message
LEAST, MOST = 1, 1 << 20  # bytes of a message
ROTATE = -1
UNITS = {"K": 10, "M": 20, "G": 30}


class _Parser(argparse.ArgumentParser):
    """A parser that raises instead of exiting, so that all ranks learn of an error."""

    def error(self, message: str) -> NoReturn:
        """Raise ArgumentError."""
        raise ArgumentError(message)


def parse(argv: Sequence[str] | None, rank: int) -> argparse.Namespace:
    """Return the options. Raise ArgumentError on all ranks; rank 0 alone prints help."""
    with redirect_stdout(StringIO()) if rank else nullcontext():
        found = parser().parse_args(argv)
    found.blocking = found.op in BLOCKING
    found.what = found.op if found.blocking else found.op[1:]
    found.algorithms = found.algorithm.split(",")
    if len(set(found.algorithms)) < len(found.algorithms) or "" in found.algorithms:
        raise ArgumentError(f"argument --algorithm: expected different names, got '{found.algorithm}'")
    if found.foreign and found.accelerator == "cuda":
        raise ArgumentError("argument --foreign: it is for host buffers; leave out -d cuda")
    found.types = _types_of(found)
    _check_derived(found)
    if found.in_place and SCHEDULED[found.what] is BCAST:
        raise ArgumentError(f"argument -l: {found.op} has one buffer and is always in place")
    if found.root and SCHEDULED[found.what] is not REDUCE:
        raise ArgumentError(f"argument -k: {found.op} has no root to choose; only reduce and ireduce have, as in OSU's")
    return found


def _types_of(found: argparse.Namespace) -> list[str]:
    """Return the types to measure, each in a table. Raise ArgumentError for one that a sum can't have."""
    joins = SCHEDULED[found.what].joins
    names = [name for one in found.type for name in (TYPES if one == ALL else [one])]
    if joins and CHAR in found.type:
        raise ArgumentError(f"argument -T: {found.op} adds mpi_int or mpi_float, got {CHAR}")
    return [name for name in dict.fromkeys(names) if not (joins and name == CHAR)]


def _check_derived(found: argparse.Namespace) -> None:
    """Raise ArgumentError for what derived types can't be used with."""
    if not found.derived:
        return
    if not found.blocking or SCHEDULED[found.what] not in (ALLGATHER, BCAST):
        raise ArgumentError(f"argument -D: {found.op} has no derived types here; bcast and allgather have")
    if found.accelerator == "cuda":
        raise ArgumentError("argument -D: it is for host buffers; leave out -d cuda")
    if found.derived.kind != "cont" and found.algorithms != ["mpi"]:
        raise ArgumentError(f"argument -D: {found.algorithm} sends contiguous arrays alone; give --algorithm mpi")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = _Parser(prog="python -m collectives.bench", description="Latency of collectives, with OSU's table.")
    made.add_argument("op", choices=[*BLOCKING, *(f"i{name}" for name in BLOCKING)])
    _add_osu(made.add_argument_group("options of the OSU microbenchmarks"))
    _add_ours(made.add_argument_group("options of ours"))
    return made


def _add_osu(group: argparse._ArgumentGroup) -> None:
    """Add the options of the OSU microbenchmarks."""
    add = group.add_argument
    add("-m", "--message-size", type=_sizes, default=(LEAST, MOST), metavar="[MIN:]MAX", help="bytes (1:1048576)")
    add("-i", "--iterations", type=_count(1), metavar="N", help="timed calls per size (1000, above 8192 bytes 100)")
    add("-x", "--warmup", type=_count(0), metavar="N", help="untimed calls before them (100, above 8192 bytes 10)")
    add("-f", "--full", action="store_true", help="also print minimum, maximum and iterations, or the phases")
    add("-c", "--validation", action="store_true", help="check the results of all sizes, not of the first alone")
    add("-u", "--validation-warmup", type=_count(0), default=5, metavar="N", help="further calls of a check (5)")
    add("-d", "--accelerator", choices=("cpu", "cuda"), default="cpu", help="the memory of the buffers")
    add("-M", "--mem-limit", type=_count(1), default=LIMIT, metavar="BYTES", help=f"most bytes of a message ({LIMIT})")
    add(
        "-z",
        "--tail-lat",
        type=_percentiles,
        nargs="?",
        const=(50, 90, 99),
        metavar="P,P",
        help="percentiles (50,90,99)",
    )
    add("-l", "--in-place", action="store_true", help="reduce in place")
    add("-k", "--root-rank", dest="root", type=_root, default=0, metavar="fixed:R|rotate", help="the root (fixed:0)")
    add(
        "-T",
        "--type",
        type=_types,
        default=("mpi_float",),
        metavar=f"all|{'|'.join(TYPES)}",
        help="a table for each type, of one, some or all (mpi_float; OSU's is mpi_char)",
    )
    add("-D", "--ddt", dest="derived", type=_derived, metavar="TYPE", help=f"types of bcast, allgather: {FORMS}")
    add("-G", "--graph", type=_graphs, default=(), metavar="tty,png,pdf", help="draw the latency of each call")
    add(
        "-t",
        "--num-test-calls",
        dest="tests",
        type=_count(0),
        default=0,
        metavar="N",
        help="MPI_Test calls meanwhile (0)",
    )


def _add_ours(group: argparse._ArgumentGroup) -> None:
    """Add the options that OSU's benchmarks lack."""
    add = group.add_argument
    add("--algorithm", default="auto", metavar="A,B", help=f"algorithms, timed in turn, of {every_name()}")
    add("--chunk-bytes", type=_count(1), default=0, metavar="N", help="bytes of a schedule's chunk")
    add("--foreign", action="store_true", help="plain buffers instead of those that the ranks of a node share")
    add("--supernodes", default="", metavar="HOSTS", help="'n0,n1;n2,n3', a pattern such as 'rack(\\d+)-.*', or slurm")
    add("--bound", action="store_true", help="print the bound by the machine's memory or links, measured in this run")
    add("--python-share", action="store_true", help="print how much of the time is steps, not bytes; chunks of 4 MiB")
    add("--json", metavar="FILE", help="write all rows as JSON")
    add("--plot", metavar="FILE.png", help="draw latency over size")


def check_outputs(found: argparse.Namespace) -> None:
    """Raise ArgumentError, before measuring, for a file that can't be written."""
    graphs = [(file_of(found.op, kind), FILES[kind]) for kind in found.graph if kind != TTY]
    for name, start in ((found.json, b"[\n {\n"), (found.plot, FILES["png"]), *graphs):
        if not name:
            continue
        path = Path(name)
        if path.is_dir() or not path.parent.is_dir():
            raise ArgumentError(f"can't write {path}: {'a folder' if path.is_dir() else f'no folder {path.parent}'}")
        if is_device(path):
            raise ArgumentError(f"can't write {path}: {DEVICE}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ArgumentError(f"can't write {path}: permission denied")
        if path.exists() and not _starts_with(path, start):
            raise ArgumentError(f"can't write {path}: it is no earlier output of this benchmark; name another file")
    if (found.plot or graphs) and importlib.util.find_spec("matplotlib") is None:
        what = "--plot" if found.plot else f"-G {','.join(found.graph)}"
        raise ArgumentError(f"{what} needs matplotlib: pip install 'scaffe[plot]'")


def _starts_with(path: Path, start: bytes) -> bool:
    """Return whether a file begins with an output's first bytes, or is empty."""
    with path.open("rb") as file:
        return file.read(len(start)) in (b"", start)


def sizes(found: argparse.Namespace, itemsize: int) -> tuple[list[int], str]:
    """Return the sizes, doubled from MIN to MAX, that hold an element, and a warning about the limit or ""."""
    (size, most), warning = found.message_size, ""
    limit = max(found.mem_limit, LEAST_LIMIT)
    if limit > found.mem_limit:
        warning = f"Requested memory limit too low, using [{limit}] instead."
    if most > limit:
        warning += f"Warning! Limiting max message size to: {limit}. Increase -M, --mem-limit for higher message sizes."
    chosen = []
    while size <= min(most, limit):
        chosen += [size] * (size >= itemsize)
        size *= 2
    if not chosen:
        least = found.message_size[0]
        raise ArgumentError(
            f"argument -m: no size from {least} to {min(most, limit)} holds an element of {itemsize} bytes"
        )
    return chosen, warning


def _count(least: int) -> Callable[[str], int]:
    """Return the reader of a whole number from `least` on."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} on, got '{text}'")
        return int(text)

    return read


def _sizes(text: str) -> tuple[int, int]:
    """Read [MIN:]MAX."""
    low, colon, high = text.partition(":") if ":" in text else ("", ":", text)
    try:
        least, most = _bytes(low) if low else LEAST, _bytes(high) if high else MOST
    except ValueError:
        least, most = 0, 0
    if not 1 <= least <= most or not (low or high):
        raise argparse.ArgumentTypeError(f"expected [MIN:]MAX in bytes, 1 <= MIN <= MAX, got '{text}'")
    return least, most


def _bytes(text: str) -> int:
    """Return the bytes of `1000`, `64K`, `1M` or `1G`. Raise ValueError for another text."""
    shift = UNITS.get(text[-1:].upper())
    return int(text) if shift is None else int(text[:-1]) << shift


def _types(text: str) -> tuple[str, ...]:
    """Read names of types, or "all"."""
    return _some(text.lower(), (ALL, *TYPES))


def _graphs(text: str) -> tuple[str, ...]:
    """Read kinds of graphs."""
    return _some(text, (TTY, *FILES))


def _some(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Read one or several of the known names."""
    if not all(one in known for one in text.split(",")):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}, got '{text}'")
    return tuple(text.split(","))


def _derived(text: str) -> Derived:
    """Read a derived type."""
    try:
        return read_derived(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _percentiles(text: str) -> tuple[int, ...]:
    """Read up to five percentiles."""
    parts = text.split(",")
    if len(parts) > 5 or not all(part.isdecimal() and int(part) <= 100 for part in parts):
        raise argparse.ArgumentTypeError(f"expected up to five percentiles from 0 to 100, got '{text}'")
    return tuple(map(int, parts))


def _root(text: str) -> int:
    """Read fixed:RANK or rotate."""
    kind, _, rank = text.partition(":")
    if text == "rotate":
        return ROTATE
    if kind != "fixed" or not rank.isdecimal():
        raise argparse.ArgumentTypeError(f"expected fixed:RANK or rotate, got '{text}'")
    return int(rank)
