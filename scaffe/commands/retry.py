"""scaffe retry."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Sequence

from scaffe.commands import train
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import settings
from scaffe.errors import ScaffeError
from scaffe.files import snapshot
from scaffe.files.states import complete
from scaffe.proto.files import read_solver
from scaffe.training.hosts import Hosts
from scaffe.training.retries import Retries

RANK = 17
DEFAULT = 3  # retries


def add(top: Parser) -> None:
    """Add `retry`."""
    text = "Run a launcher's command, and start the training again at its newest snapshot when a process was lost."
    command = add_command(top, "retry", _retry, text)
    command.flag("retries", type=int, default=DEFAULT, metavar="N", help=f"starts after the first [{DEFAULT}]")
    text = "behind --: a launcher with `scaffe train --solver FILE --snapshot auto`"
    command.add_argument("words", nargs="+", metavar="COMMAND", help=text)


def _retry(a: argparse.Namespace) -> int:
    if a.retries < 0:
        raise ScaffeError(f"--retries must be 0 or more, got {a.retries}")
    flags = _training(a.words, is_again=a.retries > 0)
    run = settings(flags).run
    hosts = Hosts(a.words, run.min_ranks, run.scaling == "weak")
    prefix = read_solver(flags.solver).snapshot_prefix
    if shutil.which(a.words[0]) is None:
        raise ScaffeError(f"'{a.words[0]}' can't be started: there is no such program")
    lock = snapshot.lock(prefix).path  # a training that ends removes it
    return Retries(a.words, a.retries, _newest(prefix), hosts=hosts, is_broken_off=lambda: os.path.exists(lock)).run()


def _training(words: Sequence[str], is_again: bool) -> argparse.Namespace:
    """Return the flags of the training. Raise ScaffeError for one to be started again that would begin anew."""
    parser = Parser(prog="scaffe")
    train.add(parser)
    place = next((i for i, word in enumerate(words) if word == "train"), None)
    flags = parser.parse_args(words[place:]) if place is not None else None
    if flags is None or (is_again and flags.snapshot != "auto"):
        raise ScaffeError("retries need a training that goes on at its newest snapshot: scaffe train --snapshot auto")
    return flags


def _newest(prefix: str) -> Callable[[], str | None]:
    """Return a function that returns the newest snapshot of a training."""

    def newest() -> str | None:
        found = complete(prefix)
        return found[-1].path if found else None

    return newest
