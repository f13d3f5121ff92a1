"""Caffe's command lines, word for word: every flag of each of its tools, in every spelling that gflags takes."""

import numpy as np
import pytest
from nets import write_images

from readers import read_mean
from scaffe.cli import main, parser
from scaffe.monitor.log import log
from scaffe.parallel.world import open_world

# Flags of tools/caffe.cpp, with a value; and which command has a use for which. Commands take them all.
CAFFE = {
    "gpu": "0,1", "solver": "s.prototxt", "model": "m.prototxt", "phase": "TEST", "level": "2", "stage": "a,b",
    "snapshot": "s.solverstate", "weights": "w.caffemodel", "iterations": "7", "sigint_effect": "none",
    "sighup_effect": "stop",
}  # fmt: skip
USED = {
    "train": "gpu solver level stage snapshot weights sigint_effect sighup_effect",
    "test": "gpu model level stage weights iterations",
    "time": "gpu model phase level stage weights iterations",
    "device_query": "gpu",
}
NEEDED = {"train": ["solver"], "test": ["model", "weights"], "time": ["model"], "device_query": []}

# Flags of the other tools: DEFINE_bool as True, others with a value.
TOOLS = {
    "convert_imageset images/ list.txt db": {
        "gray": True, "shuffle": True, "backend": "lmdb", "resize_width": "32", "resize_height": "24",
        "check_size": True, "encoded": True, "encode_type": "png",
    },
    "compute_image_mean db mean.binaryproto": {"backend": "leveldb"},
    "convert_mnist_data images labels db": {"backend": "lmdb"},
}  # fmt: skip
# Those that take words alone.
WORDS = {
    "extract_features w net.prototxt fc7,fc8 a,b 10 lmdb": {"format": "lmdb", "mode": None, "device_id": None},
    "extract_features w net.prototxt fc7 a 10 lmdb CPU": {"mode": "CPU", "device_id": None},
    "extract_features w net.prototxt fc7 a 10 lmdb GPU": {"mode": "GPU", "device_id": None},
    "extract_features w net.prototxt fc7 a 10 lmdb GPU 1": {"mode": "GPU", "device_id": "1"},
    "extract_features w net.prototxt fc7 a 10 lmdb GPU DEVICE_ID=1": {"mode": "GPU", "device_id": "1"},
    "extract_features w net.prototxt fc7 a 10 lmdb CPU 0": {"mode": "CPU", "device_id": "0"},
    "upgrade_net_proto_text old new": {"old": "old", "new": "new"},
    "upgrade_net_proto_binary old new": {"old": "old", "new": "new"},
    "upgrade_solver_proto_text old new": {"old": "old", "new": "new"},
    "convert_cifar_data in out lmdb": {"folder": "in", "out_dir": "out"},
    "compute_image_mean db": {"out": None},
}
GLOG_SWITCHES = (
    "alsologtostderr", "colorlogtostderr", "drop_log_memory", "log_prefix", "logtostderr",
    "stop_logging_if_full_disk", "symbolize_stacktrace",
)  # fmt: skip
GLOG = (
    "alsologtoemail", "log_backtrace_at", "log_dir", "log_link", "logbuflevel", "logbufsecs", "logemaillevel",
    "logmailer", "max_log_size", "minloglevel", "stderrthreshold", "v", "vmodule",
)  # fmt: skip
ON, OFF = ("", "=true", "=1", "=t", "=yes", "=Y", "=True"), ("=false", "=0", "=f", "=no", "=N", "=False")


PARSER = parser()


def parsed(*words):
    return PARSER.parse_args([word for part in words for word in part.split()])


def spellings(name, value):
    return [f"{dash}{name}{between}{value}" for dash in ("-", "--") for between in ("=", " ")]


def needed(command, name=""):
    return " ".join(f"-{flag}={CAFFE[flag]}" for flag in NEEDED[command] if flag != name)


@pytest.mark.parametrize("name", CAFFE)
@pytest.mark.parametrize("command", USED)
def test_each_command_takes_each_flag_of_caffe(command, name):
    for words in spellings(name, CAFFE[name]):
        for line in (f"{command} {words} {needed(command, name)}", f"{words} {command} {needed(command, name)}"):
            found = parsed(line)
            if name in USED[command].split():
                assert (str(getattr(found, name)), found.ignored) == (CAFFE[name], None)
            else:
                assert found.ignored == [words.replace("=", " ")]


@pytest.mark.parametrize(("tool", "name"), [(tool, name) for tool, flags in TOOLS.items() for name in flags])
def test_each_tool_takes_its_flags_on_either_side_of_its_words(tool, name):
    command, words = tool.split(" ", 1)
    value = TOOLS[tool][name]
    if value is True:
        cases = {f"{dash}{name}{text}": True for dash in ("-", "--") for text in ON}
        cases |= {f"{dash}{name}{text}": False for dash in ("-", "--") for text in OFF}
        cases |= {f"{dash}no{name}": False for dash in ("-", "--")}
        cases |= {f"--no{name} --{name}": True, f"--{name} --no{name}": False, "": False}  # the last one counts
    else:
        cases = dict.fromkeys(spellings(name, value), value)
    for flag, expected in cases.items():
        for line in (f"{command} {flag} {words}", f"{command} {words} {flag}"):
            found = parsed(line)
            assert str(getattr(found, name)) == str(expected), line
            assert found.db == "db"


@pytest.mark.parametrize("line", WORDS)
def test_each_tool_takes_its_words(line):
    found = parsed(line)
    assert {name: getattr(found, name) for name in WORDS[line]} == WORDS[line]


@pytest.mark.parametrize("tool", [*(f"{command} {needed(command)}" for command in USED), *TOOLS])
def test_glog_s_flags_are_taken_and_told_as_ignored(tool):
    command, _, words = tool.partition(" ")
    flags = [f"-{name}=1" for name in GLOG] + [f"--{name}" for name in GLOG_SWITCHES]
    told = [flag.replace("=", " ").replace("-v 1", "--v 1") for flag in flags]
    assert parsed(command, *flags, words).ignored == told
    for switch in GLOG_SWITCHES:
        assert len(parsed(command, f"-no{switch}", f"--{switch}=true", f"-{switch}=0", words).ignored) == 3


def test_a_switch_that_is_neither_on_nor_off_is_an_error(capsys):
    with pytest.raises(SystemExit):
        parsed("convert_imageset --gray=maybe images/ list.txt db")
    assert capsys.readouterr().err.startswith("scaffe: argument --gray: expected true or false, got 'maybe'; see ")


def test_an_empty_gpu_flag_is_none():
    assert PARSER.parse_args(["train", "-solver", "s", "-gpu="]).gpu is None


def test_what_is_ignored_is_logged(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "-solver=no.prototxt", "-iterations=5", "--log_dir", "logs", "-phase", "TEST"]) == 2
    assert (
        "] Ignored, since it says nothing here: -iterations 5, --log_dir logs, -phase TEST" in capsys.readouterr().err
    )


def test_a_log_that_began_before_goes_on_after_what_is_ignored(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    open_world()  # which starts the log
    assert main(["train", "-solver=no.prototxt", "-phase", "TEST"]) == 2
    log.info("a line after it")
    assert "] a line after it" in capsys.readouterr().err


def test_a_mean_need_not_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "db", 5)
    assert main(["compute_image_mean", "-backend=leveldb", "db"]) == 0  # what it is, is seen
    alone = [line.split("] ")[1] for line in capsys.readouterr().err.splitlines()]
    assert [path.name for path in tmp_path.iterdir()] == ["db"]
    assert main(["compute_image_mean", "db", "mean.binaryproto"]) == 0
    assert [line.split("] ")[1] for line in capsys.readouterr().err.splitlines()] == alone
    value = float(alone[-1].split(": ")[1])
    assert value == pytest.approx(read_mean("mean.binaryproto").mean(dtype=np.float64), rel=1e-5)


def test_a_flags_value_before_the_command_is_no_command():
    found = parsed("-stage test -phase=TRAIN --log_dir time train -solver s")
    assert (found.command, found.stage, found.solver) == ("train", "test", "s")
    assert found.ignored == ["-phase TRAIN", "--log_dir time"]
    assert parsed("-logtostderr train -solver s").command == "train"


def test_the_version_has_one_dash_or_two(capsys):
    for word in ("-version", "--version"):
        with pytest.raises(SystemExit) as ended:
            parsed(word)
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith("scaffe ")


def test_the_switches_of_models_have_one_dash_too():
    assert parsed("models lenet -deploy").deploy
    assert parsed("models lenet -solver=true").solver
    assert main(["models", "lenet", "--deploy", "--solver"]) == 2
