"""Flag files, the environment, unknown flags, words behind --, as gflags takes them; the names of Caffe's tools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scaffe.cli import main, parser

PARSER = parser()
TRAIN = ["train", "-solver", "s"]


def parsed(*words: str):
    return PARSER.parse_args(list(words))


def refused(capsys, *words: str) -> str:
    """Return the line that refuses a command line."""
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, *lines: str) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("words", [["--flagfile=f"], ["-flagfile", "f"], ["-flagfile=f"]])
def test_a_flag_file_gives_flags_one_a_line(folder, words):
    write("f", "# a comment", "", "--gray", "-resize_width=32", "  --encode_type=png  ", "--noshuffle")
    found = parsed("convert_imageset", "--shuffle", *words, "root", "list", "db")
    assert (found.gray, found.resize_width, found.encode_type, found.shuffle) == (True, 32, "png", False)
    assert parsed(*words, "convert_imageset", "root", "list", "db").gray


def test_of_a_flag_file_and_a_flag_the_later_one_counts(folder):
    write("f", "--iterations=3")
    words = ["time", "-model", "m"]
    assert parsed(*words, "-flagfile=f", "-iterations=5").iterations == 5
    assert parsed(*words, "-iterations=5", "-flagfile=f").iterations == 3


def test_flag_files_name_others_and_unknown_flags_of_theirs_are_left_out(folder):
    write("a", "--level=2", "--flagfile=b", "--of_another_tool=1")
    write("b", "--stage=x", "--level=3")
    found = parsed(*TRAIN, "--flagfile=a,b")
    assert (found.level, found.stage, found.ignored) == (3, "x", ["--of_another_tool=1"])


@pytest.mark.parametrize(
    ("programs", "expected"), [("caffe", 2), ("scaffe other", 2), ("sc*", 2), ("other", None), ("*.bin x?", None)]
)
def test_a_section_of_a_flag_file_is_for_the_programs_that_it_names(folder, programs, expected):
    write("f", programs, "--level=2", "caffe", "--stage=x", "other", "--stage=y")
    found = parsed(*TRAIN, "--flagfile=f")
    assert (found.level, found.stage) == (expected, "x")


def test_several_lines_of_programs_name_one_section(folder):
    write("f", "other", "caffe", "another", "--level=2")
    assert parsed(*TRAIN, "--flagfile=f").level == 2


def test_flags_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("FLAGS_sighup_effect", "stop")
    monkeypatch.setenv("FLAGS_level", "4")
    monkeypatch.delenv("FLAGS_stage", raising=False)
    found = parsed(*TRAIN, "--fromenv=sighup_effect,level", "-tryfromenv", "stage")
    assert (found.sighup_effect, found.level, found.stage) == ("stop", 4, "")
    monkeypatch.setenv("FLAGS_gray", "false")
    assert not parsed("convert_imageset", "--gray", "--fromenv=gray", "root", "list", "db").gray


def test_a_variable_can_name_a_flag_file(folder, monkeypatch):
    write("f", "--level=2", "--of_another_tool=1")
    monkeypatch.setenv("FLAGS_flagfile", "f")
    found = parsed(*TRAIN, "--fromenv=flagfile")
    assert (found.level, found.ignored) == (2, ["--of_another_tool=1"])


def test_a_byte_order_mark_hides_no_flag(folder):
    Path("f").write_bytes(b"\xef\xbb\xbf--level=2\r\n--stage=x\r\n")
    found = parsed(*TRAIN, "--flagfile=f")
    assert (found.level, found.stage) == (2, "x")


def test_unknown_flags_can_be_allowed():
    found = parsed(*TRAIN, "--undefok=speed,fast", "--speed=9", "-nofast")
    assert found.ignored == ["--speed=9", "-nofast"]
    assert parsed(*TRAIN, "--undefok", "level", "--level=1").level == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--flagfile=no"], "scaffe: --flagfile no: no such file"),
        (["--flagfile=own"], "scaffe: --flagfile own: the file names itself"),
        (["--flagfile=blank"], "scaffe: blank:2: expected --name=value, got '--level 3'"),
        (["--flagfile=wrong"], "scaffe: argument --level: expected a whole number of 32 bits, got 'x'"),
        (["--flagfile=bytes"], "scaffe: --flagfile bytes: "),
        (["--flagfile"], "scaffe: argument --flagfile: expected one argument"),
        (["--fromenv=tryfromenv"], "scaffe: --fromenv tryfromenv: a variable can't name further variables"),
        (["--fromenv=stage"], "scaffe: --fromenv stage: the environment has no FLAGS_stage"),
        (["--speed=9"], "scaffe: unrecognized arguments: --speed=9"),
        (["--undefok=speed", "--spede=9"], "scaffe: unrecognized arguments: --spede=9"),
        (["--level"], "scaffe: argument --level: expected one argument"),
        (["--level", "--gpu", "0"], "scaffe: argument --level: expected one argument"),
        (["true"], "scaffe: unrecognized arguments: true"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, monkeypatch, capsys, words, said):
    monkeypatch.delenv("FLAGS_stage", raising=False)
    write("own", "--flagfile=own")
    write("blank", "--stage=a b", "--level 3")
    write("wrong", "--level=x")
    Path("bytes").write_bytes(b"--stage=\xff\xfe\n")
    assert refused(capsys, *TRAIN, *words).startswith(said)


def test_a_switch_takes_no_word_for_its_value():
    found = parsed("convert_imageset", "--gray", "true", "list", "db")
    assert (found.gray, found.root) == (True, "true")


def test_flags_stand_between_the_words_too():
    found = parsed("compute_image_mean", "db", "-backend", "lmdb", "mean.binaryproto")
    assert (found.db, found.out, found.backend) == ("db", "mean.binaryproto", "lmdb")
    found = parsed("convert_imageset", "root", "-gray", "list", "--resize_width", "3", "db", "-noshuffle")
    assert (found.root, found.list, found.db, found.resize_width) == ("root", "list", "db", 3)


def test_behind_two_dashes_words_are_no_flags():
    found = parsed("convert_imageset", "-gray", "--", "-gray=false", "-v", "--undefok=x")
    assert (found.gray, found.root, found.list, found.db) == (True, "-gray=false", "-v", "--undefok=x")


@pytest.mark.parametrize("level", ["-3", "+3"])
def test_a_value_may_begin_with_a_sign(level):
    assert parsed(*TRAIN, "-level", level).level == parsed(*TRAIN, f"-level={level}").level == int(level)


@pytest.mark.parametrize(
    ("tool", "words", "command"),
    [
        ("caffe.bin train", "-solver s", "train"),
        ("caffe train", "-solver s", "train"),
        ("caffe -solver=s train", "", "train"),
        ("train.bin", "-solver s", "train"),
        ("device_query.bin", "", "device-query"),
        ("convert_imageset.bin", "r l d", "convert-imageset"),
        ("compute_image_mean.bin", "d", "compute-image-mean"),
        ("extract_features.bin", "w n b o 1 leveldb GPU 0", "extract-features"),
        ("upgrade_net_proto_text.bin", "a b", "upgrade-net"),
        ("upgrade_net_proto_binary.bin", "a b", "upgrade-net"),
        ("upgrade_solver_proto_text.bin", "a b", "upgrade-solver"),
        ("convert_mnist_data.bin", "i l d", "convert-mnist"),
        ("convert_mnist_siamese_data.bin", "i l d", "convert-mnist"),
        ("convert_cifar_data.bin", "i o leveldb", "convert-cifar10"),
    ],
)
def test_caffes_tools_keep_their_names_and_their_suffix(tool, words, command):
    found = vars(parsed(*tool.split(), *words.split()))
    assert found["command"] == command
    ours = vars(parsed(command, *words.split(), *(["-solver", "s"] if command == "train" else [])))
    told = {"run", "siamese", "backend", "form"}  # the first differs for each parser, the others are said by the name
    assert {name: value for name, value in found.items() if name not in told} == {
        name: value for name, value in ours.items() if name not in told
    }


def test_a_tools_name_says_what_its_flags_say_here():
    pairs = parsed("convert_mnist_siamese_data", "i", "l", "d")
    assert (pairs.siamese, pairs.backend) == (True, "leveldb")
    assert parsed("convert_mnist_siamese_data", "i", "l", "d", "-backend=lmdb").backend == "lmdb"
    assert not parsed("convert_mnist_data", "i", "l", "d").siamese
    assert parsed("upgrade_net_proto_binary", "a", "b").form == "binary"


@pytest.mark.parametrize(
    ("tool", "instead"),
    [("train_net", "train --solver"), ("finetune_net.bin", "train .*--weights"), ("test_net", "test --model"),
     ("net_speed_benchmark", "time --model")],
)  # fmt: skip
def test_deprecated_tools_name_the_command_to_use(tool, instead, capsys):
    line = refused(capsys, tool, "solver.prototxt", "0")
    assert line.startswith(f"scaffe: {tool.removesuffix('.bin')} is one of Caffe's deprecated tools: use scaffe ")
    assert re.search(instead, line)


def test_each_command_prints_the_version(capsys):
    with pytest.raises(SystemExit) as ended:
        parsed("train", "-version")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("scaffe ")


def test_what_a_flag_file_leaves_out_is_logged(folder, capsys):
    write("f", "--of_another_tool=1")
    assert main(["upgrade-net", "--flagfile=f", "no", "new"]) == 2
    assert "Ignored, since it says nothing here: --of_another_tool=1" in capsys.readouterr().err
