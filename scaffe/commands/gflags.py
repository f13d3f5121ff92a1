"""Parser: the command line's words, in scaffe's spelling and in Caffe's, whose flags are gflags'."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from typing import Any

from scaffe.monitor.log import one_line
from scaffe.parallel.world import launcher_rank

ON, OFF = ("1", "t", "true", "y", "yes"), ("0", "f", "false", "n", "no")  # values of a switch

# Flags of the tool caffe, each of whose commands takes them all, whether or not it uses them.
CAFFE = (
    "gpu", "solver", "model", "phase", "level", "stage", "snapshot", "weights", "iterations", "sigint-effect",
    "sighup-effect",
)  # fmt: skip

# Flags that every tool of Caffe takes, for its log; ours goes to stderr.
GLOG = (
    "alsologtoemail", "log-backtrace-at", "log-dir", "log-link", "logbuflevel", "logbufsecs", "logemaillevel",
    "logmailer", "max-log-size", "minloglevel", "stderrthreshold", "v", "vmodule",
)  # fmt: skip
GLOG_SWITCHES = (
    "alsologtostderr", "colorlogtostderr", "drop-log-memory", "log-prefix", "logtostderr", "stop-logging-if-full-disk",
    "symbolize-stacktrace",
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """Report a wrong command line in one line, and once, however many ranks there are.

    Flags are spelled as gflags spells them too: with one dash, with underscores, -flag=value, before the command;
    switches also -switch=true and -noswitch.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.commands: Collection[str] = ()
        self._known: set[str] = set()  # flags, by their names
        self._off: dict[str, str] = {}  # a switch's spelling: what turns it off
        self.add_argument("-help", "-helpfull", "-helpshort", action="help", help=argparse.SUPPRESS)

    def error(self, message: str):
        if launcher_rank() == 0:
            print(f"scaffe: {one_line(message)}; see {self.prog} --help", file=sys.stderr)
        self.exit(2)

    def flag(self, name: str, **options: Any) -> None:
        """Add --name, also as -name and with underscores for hyphens: Caffe's own spelling."""
        self._known.add(name)
        self.add_argument(*_spellings(name), **options)
        if options.get("action") == "store_true":
            self._add_off(name, action="store_false", dest=name.replace("-", "_"), default=False)

    def add_caffes(self, tool: Sequence[str] = ()) -> None:
        """Add what else Caffe's tool takes, to be told as ignored: of the flags `tool` the unknown ones, and glog's."""
        ignored: dict[str, Any] = {"action": _Ignored, "dest": "ignored"}
        for name in (*tool, *GLOG):
            if name not in self._known:
                self.add_argument(*_spellings(name), help=argparse.SUPPRESS, **ignored)
        for name in GLOG_SWITCHES:
            self.add_argument(*_spellings(name), nargs=0, help=argparse.SUPPRESS, **ignored)
            self._add_off(name, nargs=0, **ignored)

    def _add_off(self, name: str, **options: Any) -> None:
        """Add the spellings that turn a switch off."""
        off = _spellings("no" + name)
        self._off |= dict.fromkeys(_spellings(name), off[0])
        self.add_argument(*off, help=argparse.SUPPRESS, **options)

    def parse_known_args(self, args=None, namespace=None):
        words = list(map(self._plain, sys.argv[1:] if args is None else args))
        return super().parse_known_args(self._command_first(words), namespace)

    def _plain(self, word: str) -> str:
        """Return a word as argparse takes it: a switch with a value, -gray=true, as the switch that says the same."""
        name, equals, value = word.partition("=")
        if name == "-v":  # as a letter it would stand for -verbose too
            return f"-{word}"
        if not equals or name not in self._off:
            return word
        if value.lower() not in (*ON, *OFF):
            self.error(f"argument {name}: expected true or false, got '{value}'")
        return name if value.lower() in ON else self._off[name]

    def _command_first(self, words: list[str]) -> list[str]:
        """Return the words with the command before the flags, behind which it may stand."""
        place = next((i for i, word in enumerate(words) if word in self.commands), 0)
        return [words[place], *words[:place], *words[place + 1 :]] if place and words[0].startswith("-") else words


class _Ignored(argparse.Action):
    """Keep the words of a flag that says nothing here."""

    def __call__(self, parser, namespace, values, option_string=None):
        words = [option_string, values] if isinstance(values, str) else [option_string]
        namespace.ignored = [*(namespace.ignored or []), " ".join(words)]


def _spellings(name: str) -> list[str]:
    if len(name) == 1:
        return [f"--{name}"]
    return list(dict.fromkeys(dash + spelling for dash in ("--", "-") for spelling in (name, name.replace("-", "_"))))
