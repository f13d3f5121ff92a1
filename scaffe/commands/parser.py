"""Flags that several commands have."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scaffe.commands.gflags import Parser
from scaffe.compute import Compute
from scaffe.parallel.instances.instances import Instances
from scaffe.setting import Setting, settings_of
from scaffe.training.settings import titles

CAFFES = "Caffe's"  # title of the flags that Caffe has too


def add_command(
    top: Parser,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    caffes: Sequence[str] | Mapping[str, Sequence[str]] = (),
) -> Parser:
    """Add a command, by its name, by that with underscores and by those of Caffe's tools; return its parser.

    `caffes` holds the names of the tools, or, in a mapping, each with the flags that it stands for.
    """
    command = top.command(name, text, caffes if isinstance(caffes, Mapping) else dict.fromkeys(caffes, ()))
    command.set_defaults(run=run, ignored=None)
    return command


def add_settings(command: Parser, record: type, *names: str) -> None:
    """Add a flag for each field of a record, or those of `names`. A flag that is not given is None: no value."""
    for one in settings_of(record):
        if names and one.name not in names:
            continue
        command.flag(one.flag_name, group=titles()[record], rare=one.rare, default=None, **_options(one))


def _options(one: Setting) -> dict[str, Any]:
    """Return a setting's flag as argparse expects it."""
    told = not one.shown or one.default is False or f"{one.shown}:" in one.text
    text = one.text.replace("%", "%%") + ("" if told else f" [{one.shown}]")
    if isinstance(one.default, bool):
        return {"action": "store_true", "help": text}
    values: dict[str, Any] = {"metavar": one.metavar or "|".join(one.values)}
    if one.values:
        values["choices"] = tuple(one.values)
    if one.parse:
        values["type"] = _argument(one.parse)
    elif not isinstance(one.default, str):
        values["type"] = type(one.default)
    return values | {"help": text}


def _argument(parse: Callable[[Any], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def add_net_flags(command: Parser) -> None:
    """Add the flags of a net: its state, and how it computes."""
    command.flag("gpu", group=CAFFES, type=_given, metavar="IDS", help="GPU ids or 'all'; the same as --device cuda")
    command.flag("level", group=CAFFES, rare=True, type=_level, metavar="N", help="level of the net's state")
    command.flag("stage", group=CAFFES, rare=True, default="", metavar="A,B", help="stages of the net's state")
    add_settings(command, Compute)


def add_instances(command: Parser) -> None:
    """Add the flags of a command whose instances run nets forward alone."""
    add_settings(command, Instances, "n", "oversubscribe")


def _given(text: str) -> str | None:
    """Return a flag's value; to gflags an empty one is none."""
    return text or None


def _level(text: str) -> int:
    """Return the value of `--level`: a whole number that a net's state can hold."""
    if re.fullmatch(r"[+-]?[0-9]{1,10}", text) and -(1 << 31) <= int(text) < 1 << 31:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number of 32 bits, got '{text}'")
