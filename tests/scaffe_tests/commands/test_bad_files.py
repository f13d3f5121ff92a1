"""Files, nets, solvers and command lines that can't be: refused in one line that says what and where."""

import re
from pathlib import Path

import numpy as np
import pytest
from bad_input import LOG_LINE, NET, Refused, edit, grey, line_of, train, trainable, write_records

from readers import write_lmdb, write_mean
from scaffe.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return trainable(tmp_path, monkeypatch)


@pytest.fixture
def refused(folder, capsys):
    return Refused(folder, capsys)


# Files that are missing or are something else.


@pytest.mark.parametrize("command", ["train --solver missing", "test --model missing --weights missing"])
def test_a_missing_file_is_named_with_the_folder_it_is_sought_in(refused, folder, command):
    assert refused(*command.split()) == f"scaffe: missing: no such file or directory (relative to {folder})"


@pytest.mark.parametrize("flag", ["--weights", "--snapshot"])
def test_missing_weights_or_snapshots_are_named(refused, flag):
    assert "missing.file: no such file or directory" in refused(*train(flag, "missing.file"))


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        ("solver.prototxt", "net.prototxt", "no.prototxt", "no.prototxt: no such file or directory"),
        ("net.prototxt", '"db"', '"no_db"', "no_db: the LMDB or LevelDB can't be opened: no such file or directory"),
        ("net.prototxt", "scale:", 'mean_file: "no_mean" scale:', "mean file no_mean: no such file or directory"),
    ],
    ids=["net", "LMDB", "mean file"],
)
def test_a_missing_file_that_another_names_is_named(refused, path, old, new, said):
    edit(path, old, new)
    assert said in refused(*train())


def test_a_folder_is_no_file(refused):
    assert refused("train", "--solver", "db").startswith("scaffe: db: is a directory")


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\xff", b"just some words\n", b"{", b'net: "a'])
def test_what_is_no_prototxt_is_said_to_be_none(refused, content):
    Path("solver.prototxt").write_bytes(content)
    assert re.match(r"scaffe: solver\.prototxt(:1)?: \S", refused(*train()))


# Prototxt files that say something impossible.


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("num_output", "num_outputs", 'InnerProductParameter" has no field named "num_outputs"'),
        ("batch_size: 8", "batch_size: many", "Couldn't parse integer: many"),
        ("backend: LMDB", "backend: MDB", 'Enum type "DataParameter.DB" has no value named MDB'),
    ],
    ids=["unknown field", "wrong type", "unknown enum value"],
)
def test_what_can_not_be_parsed_is_told_with_file_and_line(refused, old, new, said):
    edit("net.prototxt", old, new)
    line = refused(*train())
    assert line.startswith(f"scaffe: net.prototxt:{line_of(NET, old)}: ")
    assert said in line


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("num_output: 10", "", r"layer 'ip' \(InnerProduct\): .*num_output"),
        ("batch_size: 8", "batch_size: 0", r"layer 'images' \(Data\): batch_size must be 1 or more, got 0"),
        ("scale:", "crop_size: 5 scale:", r"db: record '00000000' is 1 x 4 x 4, smaller than the crop_size of 5"),
    ],
    ids=["no output", "no batch", "crop too large"],
)
def test_an_impossible_net_is_refused_by_its_layer(refused, old, new, said):
    edit("net.prototxt", old, new)
    assert re.search(said, refused(*train()))


def test_shapes_that_do_not_meet_are_both_named(refused):
    edit("net.prototxt", 'bottom: "label" top: "loss"', 'bottom: "data" top: "loss"')
    line = refused(*train())
    assert "layer 'loss' (SoftmaxWithLoss)" in line and "(8, 10)" in line and "(8, 1, 4, 4)" in line


def test_a_mean_image_of_another_size_is_told_with_both(refused):
    write_mean("mean.binaryproto", np.zeros((3, 4, 4), np.float32))
    edit("net.prototxt", "scale:", 'mean_file: "mean.binaryproto" scale:')
    assert "is 1 x 4 x 4, but the mean image is 3 x 4 x 4" in refused(*train())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"fixed"', '"constant"', "lr_policy 'constant' is unknown; known policies: fixed step exp"),
        ('"fixed"', '"step"', "lr_policy 'step' needs a stepsize above 0, got 0"),
        ('net: "net.prototxt"', "", "exactly one of net, .*; got none"),
        ('"snap"', '"no/snap"', "snapshot_prefix 'no/snap': no such folder: no"),
        ("momentum: 0.9", "iter_size: 0", "iter_size must be 1 or more, got 0"),
        ("momentum: 0.9", "test_iter: 0 test_interval: 1", "test_iter must be 1 or more, got 0"),
        ("momentum: 0.9", "test_iter: 1", "test_interval must be above 0"),
        ("snapshot: 2", "snapshot: -2", "snapshot must be 0 or more, got -2"),
        ("max_iter: 4", "max_iter: -4", "max_iter must be 0 or more, got -4"),
        ("momentum: 0.9", "average_loss: 0", "average_loss must be 1 or more, got 0"),
        ("momentum: 0.9", "momentum: 1.5", "momentum must be 0 or more and below 1, got 1.5"),
        ("momentum: 0.9", "momentum: -0.5", "momentum must be 0 or more and below 1, got -0.5"),
        ("momentum: 0.9", 'regularization_type: "L3"', "regularization_type must be one of L2 L1, got 'L3'"),
        ("momentum: 0.9", 'momentum: 0.9 type: "AdaGrad"', "'AdaGrad': momentum must be 0, got 0.9"),
        ("momentum: 0.9", 'type: "RMSProp" rms_decay: 1', "'RMSProp': rms_decay must be at least 0 and below 1, got 1"),
        ("momentum: 0.9", 'type: "Adam" momentum2: 1', "'Adam': momentum2 must be at least 0 and below 1, got 1"),
        ('"fixed"\nmomentum: 0.9\nmax_iter: 4', '"poly" max_iter: 0', "'poly' needs a max_iter above 0, got 0"),
        ('"fixed"', '"sigmoid" gamma: -1', "'sigmoid' needs a gamma of 0 or more, got -1"),
        ('"fixed"', '"multistep" stepvalue: 5 stepvalue: 2', "stepvalue must rise, got 5 2"),
    ],
)
def test_an_impossible_solver_is_refused_by_its_field(refused, old, new, said):
    edit("solver.prototxt", old, new)
    assert re.search(said, refused(*train()))


@pytest.mark.parametrize(
    ("path", "old", "new", "line", "said"),
    [
        ("solver.prototxt", "base_lr: 0.01", "base_lr: nan", 3, "base_lr must be a finite number, got nan"),
        ("solver.prototxt", "base_lr: 0.01", "base_lr: 1e39", 3, "base_lr must be a finite number, got 1e39"),
        ("solver.prototxt", "momentum: 0.9", "momentum: nan", 5, "momentum must be a finite number, got nan"),
        ("solver.prototxt", "momentum: 0.9", "weight_decay: -inf", 5, "weight_decay must be a finite number, got -inf"),
        ("solver.prototxt", "momentum: 0.9", "clip_gradients: inf", 5, "clip_gradients must be a finite number"),
        ("solver.prototxt", "momentum: 0.9", "# gamma: 1\n gamma:\n NaN", 7, "gamma must be a finite number, got NaN"),
        ("solver.prototxt", "momentum: 0.9", "power: infinity", 5, "power must be a finite number, got infinity"),
        ("net.prototxt", "scale: 0.00390625", "scale: nan", 5, "scale must be a finite number, got nan"),
        ("net.prototxt", "scale: 0.00390625", "scale: -Infinity", 5, "scale must be a finite number, got -Infinity"),
        ("net.prototxt", '"xavier"', '"constant" value: nan', 10, "value must be a finite number, got nan"),
        ("net.prototxt", '"xavier"', '"gaussian" std: inf', 10, "std must be a finite number, got inf"),
        ("net.prototxt", 'top: "ip"', 'top: "ip" param { lr_mult: nan }', 9, "lr_mult must be a finite number"),
        ("net.prototxt", 'top: "loss"', 'top: "loss" loss_weight: [nan]', 12, "loss_weight must be a finite number"),
    ],
)  # fmt: skip
def test_a_number_that_is_not_finite_is_refused_with_its_line(refused, path, old, new, line, said):
    edit(path, old, new)
    assert refused(*train()).startswith(f"scaffe: {path}:{line}: {said}")


# Names with characters that a terminal would obey.

ODD = r"\n\033[2J\342\200\256"  # as a prototxt spells a line break, an escape sequence, a change of direction
SPELLED_OUT = r"\n\x1b[2J\u202e"


def test_odd_names_are_spelled_out_in_the_log(folder, capsys):
    for name in ("regression", "ip", "loss"):
        text = Path("net.prototxt").read_text()
        Path("net.prototxt").write_text(text.replace(f'"{name}"', f'"{name}{ODD}"'))
    edit("solver.prototxt", "max_iter: 4", "max_iter: 2 display: 1 test_iter: 1 test_interval: 1")
    assert main(train()) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if not LOG_LINE.match(line) or not line.replace("\t", " ").isprintable()] == []
    assert any(f"Train net output #0: loss{SPELLED_OUT} = " in line for line in lines)
    assert any(f"ip{SPELLED_OUT} (InnerProduct)" in line for line in lines)


def test_odd_names_are_spelled_out_in_errors(refused):
    edit("net.prototxt", 'name: "ip"', f'name: "ip{ODD}"')
    edit("net.prototxt", "num_output: 10", "")
    assert f"layer 'ip{SPELLED_OUT}' (InnerProduct): " in refused(*train())
    assert r"no\nfile\x1b: no such file" in refused("train", "--solver", "no\nfile\033")
    assert r"\x1bfaster" in refused(*train("--\033faster"))


def test_an_odd_key_of_a_record_is_spelled_out(refused):
    write_records(grey())
    write_lmdb("db", [(b"a", grey()), (b"b\n\033\xe2\x80\xae", b"\xff\xff")], replace=True)
    assert f"db: record 'b{SPELLED_OUT.replace('[2J', '')}': 2 bytes that are not a Datum" in refused(*train())


# The command line itself.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("train", "--solver"),
        ("train --solver solver.prototxt --speed 9", "--speed"),
        ("train --solver solver.prototxt -verbose", "unrecognized arguments: -verbose"),
        ("train --solver solver.prototxt --scal medium", "'medium' .*strong.*weak"),
        ("train --solver solver.prototxt --keep-snapshots -1", "keep_snapshots must be 0 or more, got -1"),
        ("train --solver solver.prototxt --gpu first", "--gpu takes 'all' or ids such as 0,2, got 'first'"),
        ("train --solver solver.prototxt --gpu 0 --device cpu", "--device cpu and --gpu 0 say two things"),
        ("train --solver solver.prototxt --device gpu", "'gpu' .*auto.*cpu.*cuda"),
        ("train --solver solver.prototxt --reduce xyz", "'xyz'; known are chain, .* there are auto, mpi, slices"),
        ("train --solver solver.prototxt --reduce ring", "reduce has no algorithm 'ring'"),
        ("train --solver solver.prototxt --reduce cb", "'cb' needs a chain size"),
        ("train --solver solver.prototxt --reduce leaders-xyz", "unknown algorithm 'xyz'"),
        ("train --solver solver.prototxt --threads 1000000", "threads must be 0 to .*, got 1000000"),
        ("train --solver solver.prototxt --threads -1", "threads must be 0 to .*, got -1"),
        ("train --solver solver.prototxt --reader-threads 1000000", "reader threads must be 0 to .*, got 1000000"),
        ("time --model net.prototxt --threads 1000000", "threads must be 0 to .*, got 1000000"),
        ("convert-imageset . net.prototxt db2 --threads 1000000", "threads must be 0 to .*, got 1000000"),
        ("inspect-db db --plot sheet.png --threads 1000000", "threads must be 0 to .*, got 1000000"),
        ("test --model net.prototxt", "--weights"),
        ("test --model net.prototxt --weights w --iterations 0", "--iterations must be 1 or more, got 0"),
        ("convert-imageset images list db", "list: no such file"),
        ("convert-imageset images net.prototxt db2 --backend rocksdb", "--backend.*'rocksdb' .*lmdb"),
        ("convert-imageset images net.prototxt db2 -gray=maybe", "argument -gray: expected true or false, got 'maybe'"),
        ("convert-imageset images net.prototxt db2 --shards 0", "expected 1 shard or more"),
        ("convert-imageset images net.prototxt db2", "net.prototxt:2: expected 'FILE LABEL'"),
        ("convert_mnist_data net.prototxt solver.prototxt mnist", "net.prototxt: expected an idx file of bytes"),
        ("convert_cifar_data . cifar lmdb", "data_batch_1.bin: no such file"),
        ("compute-image-mean no_db mean.binaryproto", "no_db: the LMDB or LevelDB can't be opened"),
        ("compute-image-mean db no/mean.binaryproto", "no/mean.binaryproto: no such folder: no"),
        ("inspect-db no_db", "no_db: the LMDB or LevelDB can't be opened"),
        ("inspect-db synthetic:3", "synthetic:3: expected synthetic:RECORDSxCxHxW"),
        ("inspect-db db --plot sheet.jpg", "sheet.jpg: expected the name of a .png file"),
        ("inspect-db db --images 0", "--images must be 1 or more, got 0"),
        ("--gpu 0", "COMMAND"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(refused, arguments, said):
    assert re.search(said, refused(*arguments.split()))
