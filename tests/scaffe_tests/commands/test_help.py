"""Help: each flag once, in groups, the rare ones by --help-all alone; and a command that is added as one file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaffe import commands
from scaffe.cli import main, parser

SALUTE = '''
"""scaffe salute."""

from scaffe.commands.parser import add_command


def add(top):
    """Add `salute`."""
    command = add_command(top, "salute", lambda a: print(f"Hello, {a.name}.") or 0, "Greet somebody.")
    command.flag("name", default="world", help="whom to greet")
'''


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words)
    assert ended.value.code == 0
    return capsys.readouterr().out


def flags(text: str) -> list[str]:
    """Return the flags that a help lists, not those that it mentions."""
    return re.findall(r"^  (-\S+)", text, re.MULTILINE)


def test_the_help_of_train_is_a_page_of_common_flags_in_groups(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(capsys, "train", "--help")
    assert len(text.splitlines()) <= 60
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert titles == [
        "flags",
        "Caffe's",
        "computing",
        "ranks",
        "instances of a rank",
        "data",
        "watching",
    ]
    common = {"--solver", "--workflow", "--threads", "--instances", "--gather", "--shuffle", "--timeline"}
    assert common <= set(flags(text))
    assert not {"--chunk-bytes", "--graphs", "--sigint-effect", "--launch-delay"} & set(flags(text))


def names() -> list[str]:
    return sorted(parser()._commands.choices)


@pytest.mark.parametrize("command", names())
def test_help_all_lists_every_flag_once_in_one_spelling(command: str, capsys) -> None:
    text = printed(capsys, command, "--help-all")
    listed = flags(text)
    assert len(set(listed)) == len(listed)
    assert all(flag.startswith("--") and "_" not in flag for flag in listed)
    mine = parser()._commands.choices[command]
    spellings = [action.option_strings for action in mine._actions if action.help != "==SUPPRESS=="]
    assert set(listed) == {next(one for one in flags if one.startswith("--")) for flags in spellings if flags}
    assert set(flags(printed(capsys, command, "--help"))) <= set(listed)


@pytest.mark.parametrize(("word", "all_of_them"), [("-help", False), ("-h", False), ("-helpshort", False),
                                                   ("-helpfull", True), ("-help_all", True)])  # fmt: skip
def test_help_has_the_spellings_of_gflags(word: str, all_of_them: bool, capsys) -> None:
    assert ("--chunk-bytes" in flags(printed(capsys, "train", word))) is all_of_them


def test_the_commands_stand_in_order_and_only_by_their_own_names(capsys) -> None:
    listed = re.findall(r"^    (\S+)", printed(capsys, "--help"), re.MULTILINE)
    assert listed[:3] == ["train", "test", "time"]
    assert sorted(listed) == names()


@pytest.mark.parametrize("words", [[], ["caffe"], ["caffe.bin"]], ids=" ".join)
def test_without_a_command_the_help_is_printed_as_caffe_prints_its_own(words: list[str], capsys) -> None:
    assert printed(capsys, *words) == printed(capsys, "--help")


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["train", "--help-all"]], ids=" ".join)
def test_a_help_is_printed_by_the_first_rank_alone(words: list[str], capsys, monkeypatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    assert printed(capsys, *words) == ""


@pytest.fixture
def salute(tmp_path: Path) -> Iterator[None]:
    """A command that stands in a file of its own."""
    (tmp_path / "salute.py").write_text(SALUTE)
    before = list(commands.__path__)
    commands.__path__ = [*before, str(tmp_path)]
    yield
    commands.__path__ = before
    del sys.modules["scaffe.commands.salute"], commands.salute


def test_a_command_is_one_file(salute, capsys) -> None:
    assert main(["salute", "-name=Caffe"]) == 0
    assert capsys.readouterr().out == "Hello, Caffe.\n"
    assert re.search(r"\n    salute +Greet somebody\.\n", printed(capsys, "--help"))


def test_without_its_file_there_is_no_such_command(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["salute"])
    assert "invalid choice: 'salute'" in capsys.readouterr().err
