"""Parser: command lines in scaffe's spelling and in that of gflags, the library of Caffe's flags."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from scaffe.commands.flag_words import SPECIAL, FlagError, expand, name_of
from scaffe.monitor.log import one_line
from scaffe.near import near
from scaffe.parallel.world import launcher_rank
from scaffe.version import __version__

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

# Caffe's tools that do nothing but name another one, and what that is here.
DEPRECATED = {
    "train_net": "train --solver=FILE [--snapshot=FILE]",
    "finetune_net": "train --solver=FILE --weights=FILE",
    "test_net": "test --model=FILE --weights=FILE",
    "net_speed_benchmark": "time --model=FILE [--iterations=50] [--gpu=ID]",
}


class Parser(argparse.ArgumentParser):
    """Take flags in every spelling of gflags, list them once, and report a wrong command line in one line, on one rank.

    A flag can have one dash or two, underscores or hyphens, its value behind a space or `=`, and stand before the
    command. A switch can also be written -switch=true, -noswitch and --no-switch. Words behind `--` are no
    flags. The flags of flag_words.SPECIAL are gflags' own. `--help` lists the common flags in groups, `--help-all` the
    rare ones too.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **{**options, "add_help": False, "formatter_class": _Formatter})
        self._commands: argparse._SubParsersAction[Parser] | None = None
        self._names: dict[str, list[str]] = {}  # the words that each name of a command stands for
        self._flags: set[str] = set()  # all that have several spellings, by their names
        self._switches: set[str] = set()
        self._groups: dict[str, argparse._ArgumentGroup] = {}
        self._rare: set[argparse.Action] = set()
        self._optionals.title = "flags"
        self._flags |= {"help", "helpshort", "helpfull", "helppackage", "help-all"}
        self.add_argument("-h", "--help", "--helpshort", action="help", help="list the common flags")
        self.add_argument("--help-all", "--helpfull", "--helppackage", action=_HelpAll, help="list every flag")

    def error(self, message: str) -> NoReturn:
        """Print one line, on the first rank alone, and exit with 2."""
        if launcher_rank() == 0:
            see = " See" if message.endswith("?") else "; see"
            print(f"scaffe: {one_line(message)}{see} {self.prog} --help", file=sys.stderr)
        self.exit(2)

    def command(self, name: str, text: str, others: Mapping[str, Sequence[str]]) -> Parser:
        """Add a command, and return its parser. It can be called by its name with underscores too, and by `others`.

        Each of the others is a name with the flags that it stands for.
        """
        if self._commands is None:
            self._commands = self.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
        self._names |= dict.fromkeys((name, name.replace("-", "_")), [name])
        self._names |= {other: [name, *flags] for other, flags in others.items()}
        command: Parser = self._commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command._flags.add("version")
        version = f"scaffe {__version__}"
        command.add_argument("--version", action="version", version=version, help=argparse.SUPPRESS)
        return command

    def flag(
        self, name: str, *, group: str = "", rare: bool = False, others: Sequence[str] = (), **options: Any
    ) -> None:
        """Add --name and its other spellings, listed in the `group` of that title; a `rare` one by --help-all alone.

        `others` are further names, which no help lists.
        """
        if group and group not in self._groups:
            self._groups[group] = self.add_argument_group(group)
        self._flags.update((name, *others))
        spellings = [f"--{one}" for one in (name, *others)]
        action = (self._groups[group] if group else self).add_argument(*spellings, **options)
        if rare:
            self._rare.add(action)
        if options.get("action") == "store_true":
            default = options.get("default", False)
            self._add_off(name, action="store_false", dest=name.replace("-", "_"), default=default)

    def add_caffes(self, tool: Sequence[str] = ()) -> None:
        """Add the flags that Caffe's tool has besides, to be logged as ignored: the rest of `tool`, and glog's."""
        ignored: dict[str, Any] = {"action": _Ignored, "dest": "ignored", "help": argparse.SUPPRESS}
        for name in (*tool, *GLOG):
            if name not in self._flags:
                self.add_argument(*_spellings(name), **ignored)
        for name in GLOG_SWITCHES:
            self.add_argument(*_spellings(name), nargs=0, **ignored)
            self._switches.add(name)
            self.add_argument(*_spellings(f"no{name}"), nargs=0, **ignored)

    def _add_off(self, name: str, **options: Any) -> None:
        """Add the spelling that turns a switch off."""
        self._switches.add(name)
        self._flags |= {f"no{name}", f"no-{name}"}
        self.add_argument(f"--no{name}", f"--no-{name}", help=argparse.SUPPRESS, **options)

    def format_help(self, everything: bool = False) -> str:
        """Return the help: the common flags, or `everything`."""
        shown = [a for a in self._actions if a.help != argparse.SUPPRESS and (everything or a not in self._rare)]
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, [a for a in shown if a.required or not a.option_strings], [], "usage: ")
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments([action for action in group._group_actions if action in shown])
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the arguments and the words left over; flags may have Caffe's spelling."""
        words = list(sys.argv[1:] if args is None else args)
        if self._names:
            return super().parse_known_args(self._command_first(words) or ["--help"], namespace)
        end = words.index("--") if "--" in words else len(words)
        try:
            flags, left_out = expand(words[:end], self._knows)
        except FlagError as error:
            self.error(str(error))
        found, rest = super().parse_known_args(self._in_order(flags) + words[end:], namespace)
        if left_out:
            found.ignored = [*(found.ignored or []), *left_out]
        return found, rest

    def parse_args(self, args: Any = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        """Return the arguments; a word left over is an error, which names the flag that is near."""
        found: argparse.Namespace
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            command: Parser = self._commands.choices[found.command] if self._commands else self
            flags = [f"--{name}" for name in sorted(command._flags)]
            command.error(f"unrecognized arguments: {' '.join(rest)}{near(name_of(rest[0]), flags)}")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError for a value that is none of a flag's choices, with the one that is near, or all."""
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            hint = near(str(value), known) or f" (choose from {', '.join(map(repr, known))})"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint}")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a help or the version, on the first rank alone."""
        if launcher_rank() == 0:
            super()._print_message(message, file)

    def _knows(self, name: str) -> bool:
        return f"--{name}" in self._option_string_actions

    def _in_order(self, words: Sequence[str]) -> list[str]:
        """Return the words as argparse expects them: the flags first, each with its value in one word.

        The values of a flag that has several, such as --gpus 0 1, go up to the next flag.
        """
        flags: list[str] = []
        others: list[str] = []
        rest = list(map(self._plain, words))[::-1]
        while rest:
            word = rest.pop()
            action = self._option_string_actions.get(word.partition("=")[0])
            if action and action.nargs is None and "=" not in word and rest and not self._knows(name_of(rest[-1])):
                word = f"{word}={rest.pop()}"
            (flags if action else others).append(word)
            while action and action.nargs == "+" and rest and not self._knows(name_of(rest[-1])):
                flags.append(rest.pop())
        return flags + others

    def _plain(self, word: str) -> str:
        """Return a word as argparse expects it: a flag as --name, a switch with a value, -gray=true, as a switch."""
        given, equals, value = word.partition("=")
        name = name_of(word)
        if given == "-v":  # as a letter it would stand for -verbose too
            return f"-{word}"
        if equals and name in self._switches:
            if value.lower() not in (*ON, *OFF):
                self.error(f"argument {given}: expected true or false, got '{value}'")
            return f"--{name}" if value.lower() in ON else f"--no{name}"
        return f"--{name}{equals}{value}" if name in self._flags else word

    def _command_first(self, words: Sequence[str]) -> list[str]:
        """Return the words with the command, by its own name, before the flags, behind which it may stand."""
        if words and _tool(words[0]) == "caffe":
            words = words[1:]
        places = [i for i, word in enumerate(words) if not (i and self._takes_value(words[i - 1]))]
        place = next((i for i in places if _tool(words[i]) in {*self._names, *DEPRECATED}), 0)
        if not words or (place and not words[0].startswith("-")):
            return list(words)
        name = _tool(words[place])
        if name in DEPRECATED:
            self.error(f"{name} is one of Caffe's deprecated tools: use scaffe {DEPRECATED[name]}")
        if name in self._names:
            return [*self._names[name], *words[:place], *words[place + 1 :]]
        if name.startswith("-") and not self._knows(name_of(name)) and name != "-h":
            self.error(f"no COMMAND is given, such as {self.prog} train, but flags")
        return [self._plain(words[0]), *words[1:]]

    def _takes_value(self, word: str) -> bool:
        """Say whether a word is a flag of Caffe or gflags whose value is the next word, as in -stage test."""
        return "=" not in word and name_of(word) in (*CAFFE, *GLOG, *SPECIAL)


def _tool(word: str) -> str:
    """Return the name of a tool: Caffe's build calls it train.bin too."""
    return word.removesuffix(".bin")


class _Formatter(argparse.HelpFormatter):
    """List a flag by its first spelling."""

    def __init__(self, prog: str, **options: Any):
        super().__init__(prog, max_help_position=30, **options)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        first = next(text for text in action.option_strings if text.startswith("--"))
        return first if action.nargs == 0 else f"{first} {self._format_args(action, action.dest.upper())}"


class _HelpAll(argparse.Action):
    """Print the help with the rare flags."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str):
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        parser._print_message(parser.format_help(everything=True), sys.stdout)
        parser.exit()


class _Ignored(argparse.Action):
    """Keep the words of a flag that has no meaning here."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        words = [str(option_string), *([values] if isinstance(values, str) else [])]
        namespace.ignored = [*(namespace.ignored or []), " ".join(words)]


def _spellings(name: str) -> list[str]:
    if len(name) == 1:
        return [f"--{name}"]
    return list(dict.fromkeys(dash + spelling for dash in ("--", "-") for spelling in (name, name.replace("-", "_"))))
