"""The flags that several commands have."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

from collectives.schedules.algorithms import every_name
from readers import Settings
from readers.settings import BAD_RECORDS, READERS
from scaffe.choices import AUTO
from scaffe.commands.gflags import Parser
from scaffe.context import GRAPHS, WORKSPACE_BYTES
from scaffe.engines import COMPUTE, ENGINES
from scaffe.parallel.buckets import parse_bytes
from scaffe.parallel.run import known
from scaffe.training.replay import PREFIX


def add_command(
    commands, name: str, run: Callable[[argparse.Namespace], int], text: str, caffes: Sequence[str] = ()
) -> Parser:
    """Add a command, by its name, by that with underscores and by those of Caffe's tools."""
    aliases = [name.replace("-", "_")] if "-" in name else []
    command = commands.add_parser(name, aliases=[*aliases, *caffes], help=text, description=text, allow_abbrev=False)
    command.set_defaults(run=run, ignored=None)
    return command


def add_compute_flags(command: Parser) -> None:
    """Add the flags that say where and by whose forms a net computes, and its state."""
    command.flag("gpu", type=_given, metavar="IDS", help="GPU ids or 'all', as Caffe's; the same as --device cuda")
    command.flag("device", choices=("auto", "cpu", "cuda"), default="auto", help="auto takes a GPU if there is one")
    command.flag("allow-python-layers", action="store_true", help="let the net's Python layers run code")
    command.flag("engine", choices=ENGINES, default="auto", help="which forms of the layers compute")
    command.flag(
        "compute", type=_compute, default="float32", metavar="|".join(COMPUTE), help="what convolutions and inner "
        "products multiply; train also takes replay:PROFILE.json"
    )  # fmt: skip
    command.flag("plan", default=AUTO, metavar="auto|fixed|timed|FILE", help="how ways to compute are chosen")
    command.flag("deterministic", action="store_true", help="on a GPU: take no way whose results may differ by run")
    command.flag(
        "workspace-bytes", type=_bytes, default=WORKSPACE_BYTES, metavar="N", help="that a GPU's ways to compute may "
        "work in: 64M, 1G (the default), inf"
    )  # fmt: skip
    command.flag("graphs", choices=GRAPHS, default="auto", help="may a GPU record runs of layers and repeat them?")
    command.flag("threads", type=int, default=0, metavar="N", help="of each rank; 0: OMP_NUM_THREADS, or its cores")
    command.flag("level", type=_level, metavar="N", help="level of the net's state, in place of the file's")
    command.flag("stage", default="", metavar="A,B", help="stages of the net's state")


def _given(text: str) -> str | None:
    """Return a flag's value; to gflags an empty one is none."""
    return text or None


def _level(text: str) -> int:
    """Return what `--level` names: a whole number that a net's state can hold."""
    if re.fullmatch(r"[+-]?[0-9]{1,10}", text) and -(1 << 31) <= int(text) < 1 << 31:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number of 32 bits, got '{text}'")


def _bytes(text: str) -> float:
    """Return what `--workspace-bytes` names."""
    try:
        return parse_bytes(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"bytes such as 64M or 1G are needed, got '{text}'") from None


def _compute(text: str) -> str:
    """Return what `--compute` names."""
    if text not in COMPUTE and not text.startswith(PREFIX):
        raise argparse.ArgumentTypeError(f"unknown '{text}'; known: {' '.join(COMPUTE)} {PREFIX}PROFILE.json")
    return text


def add_run_flags(command: Parser) -> None:
    """Add the flags that say how the ranks work together; those not given are the configuration's, or run.Run's."""
    values = known()
    command.flag("run-config", metavar="FILE", help="TOML file with these settings, spelled as the flags")
    command.flag("workflow", choices=values["workflow"], help="what overlaps: nothing, propagation, aggregation too")
    command.flag("sync", choices=values["sync"], help="does the root update, or every rank?")
    command.flag("reduce", metavar="NAME", help=f"collectives' algorithm: {every_name()}")
    command.flag("chain-size", type=int, metavar="N", help="ranks in a chain of cb, cc, ccb")
    command.flag("chunk-bytes", type=int, metavar="N", help="a message's bytes; 0: as tuned")
    command.flag(
        "bucket-bytes", metavar="N", help="gradients that go together: 0 (a layer's), 4M, ..., inf (all), auto"
    )
    command.flag(
        "supernodes",
        metavar="HOSTS",
        help="hosts with slower links between them: 'n0,n1;n2,n3', a pattern such as 'rack(\\d+)-.*', or slurm",
    )
    command.flag("drive", choices=values["drive"], help="who lets messages go on: between layers, or a helper computes")


def add_stall_flags(command: Parser) -> None:
    """Add the flags that say what a rank does that waits for long."""
    command.flag(
        "stall-seconds", type=float, default=60, metavar="S", help="wait so long before saying for whom; 0: off"
    )
    command.flag("stall-abort", action="store_true", help="end the job then")


def add_reader_flags(command: Parser) -> None:
    """Add the flags that say how data layers read."""
    given = Settings()
    command.flag("readers", choices=READERS, default=given.readers, help="does each rank read, or one for all?")
    command.flag("reader-threads", type=int, default=0, metavar="N", help="of each data layer; 0: cores that are free")
    command.flag("prefetch", type=int, default=0, metavar="N", help="batches read ahead; 0: as the layer says")
    command.flag("shuffle", default="", metavar="none|full|block:N", help="order of training; else the layer's")
    command.flag("bad-records", choices=BAD_RECORDS, default=given.bad_records, help="what becomes of damaged records")
    command.flag(
        "max-bad-records", type=float, default=given.max_bad_records, metavar="F", help="fail if more are skipped"
    )


def reader_settings(a: argparse.Namespace) -> Settings:
    """Return what those flags say. Raise ReaderError where one makes no sense."""
    return Settings(a.readers, a.reader_threads, a.prefetch, a.shuffle, a.bad_records, a.max_bad_records)
