"""Bad input: exit code 2, one line that says what is wrong and where, nothing written, no traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nets
import numpy as np
import pytest
from conftest import environment

import scaffe
from readers import encode, write_lmdb, write_mean
from scaffe.cli import main
from scaffe.errors import DivergedError
from scaffe.proto import Datum, NetParameter, SolverState

LOG_LINE = re.compile(r"[IW]\d{4} \d\d:\d\d:\d\d\.\d{6} ")
NET = nets.softmax_regression("db")
SOLVER = """
net: "net.prototxt"
base_lr: 0.01
lr_policy: "fixed"
momentum: 0.9
max_iter: 4
snapshot: 2
snapshot_prefix: "snap"
random_seed: 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a net that can be trained: net.prototxt, solver.prototxt and db."""
    monkeypatch.chdir(tmp_path)
    nets.write_images(tmp_path / "db", 20, (1, 4, 4))
    Path("net.prototxt").write_text(NET)
    Path("solver.prototxt").write_text(SOLVER)
    return tmp_path


@pytest.fixture
def refused(folder, capsys):
    """Run a command that must fail; return its one line of error. It may not touch any file."""

    def run(*arguments):
        before = files(folder)
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        line = the_error(capsys.readouterr().err)
        assert code == 2
        assert files(folder) == before
        return line

    return run


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def the_error(stderr):
    """Return the one line that is not of the log."""
    lines = [line for line in stderr.splitlines() if not LOG_LINE.match(line)]
    assert len(lines) == 1, stderr
    assert lines[0].startswith("scaffe: ")
    return lines[0]


def edit(path, old, new):
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new, 1))


def line_of(text, word):
    return text[: text.index(word)].count("\n") + 1


def train(*more):
    return ("train", "--solver", "solver.prototxt", *more)


def trained(folder):
    """Train to iteration 4, which leaves snapshots of iterations 2 and 4."""
    assert main(train()) == 0
    return folder / "snap_iter_4.caffemodel", folder / "snap_iter_4.solverstate"


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
        ("net.prototxt", '"db"', '"no_db"', "no_db: the LMDB can't be opened: no such file or directory"),
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


def test_a_net_given_as_solver_is_refused_at_its_line(refused):
    assert re.search(r'net\.prototxt:2: .*"SolverParameter" .*"name"', refused("train", "--solver", "net.prototxt"))


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
        ('"InnerProduct"', '"InnerProdukt"', "layer 'ip': unknown type 'InnerProdukt'; known types: .*InnerProduct"),
        ('"xavier"', '"xaver"', "layer 'ip': unknown filler 'xaver'; known fillers: .*xavier"),
        ('bottom: "ip"', 'bottom: "pi"', "layer 'loss'.* produces its bottom 'pi'; blobs so far: data label ip"),
        ("num_output: 10", "", r"layer 'ip' \(InnerProduct\): .*num_output"),
        ("batch_size: 8", "batch_size: 0", r"layer 'images' \(Data\): batch_size must be 1 or more, got 0"),
        ("scale:", "crop_size: 5 scale:", r"db: record '00000000' is 1 x 4 x 4, smaller than the crop_size of 5"),
    ],
    ids=["unknown layer type", "unknown filler", "bottom never produced", "no output", "no batch", "crop too large"],
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
        ("momentum: 0.9", "momentun: 0.9", 'solver.prototxt:5: .*no field named "momentun"'),
        ("momentum: 0.9", 'type: "SDG"', "unknown solver type 'SDG'; known types: .*SGD"),
        ('"fixed"', '"constant"', "lr_policy 'constant' is unknown; known policies: fixed step exp"),
        ('"fixed"', '"step"', "lr_policy 'step' needs a stepsize above 0, got 0"),
        ('net: "net.prototxt"', "", "exactly one of net, .*; got none"),
        ('"snap"', '"no/snap"', "snapshot_prefix 'no/snap': no such folder: no"),
        ("momentum: 0.9", "iter_size: 0", "iter_size must be 1 or more, got 0"),
        ("momentum: 0.9", "test_iter: 0 test_interval: 1", "test_iter must be 1 or more, got 0"),
        ("momentum: 0.9", "test_iter: 1", "test_interval must be above 0"),
        ("snapshot: 2", "snapshot: -2", "snapshot must be 0 or more, got -2"),
    ],
)
def test_an_impossible_solver_is_refused_by_its_field(refused, old, new, said):
    edit("solver.prototxt", old, new)
    assert re.search(said, refused(*train()))


# Records.


def write_records(*records):
    """Write an LMDB 'db' anew, of records with the keys 00000000, 00000001 ..."""
    os.unlink("db/data.mdb")
    os.rmdir("db")
    write_lmdb("db", [(b"%08d" % i, record) for i, record in enumerate(records)])


def grey(side=4, label=0):
    return encode(np.full((1, side, side), 100, np.uint8), label)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (grey(label=10), "label 10 in row 5 .*record '00000005'.* outside the classes 0 to 9"),
        (grey(label=-1), "label -1 in row 5 .*record '00000005'"),
        (grey(side=5), "record '00000005' is 1 x 5 x 5, but the first record is 1 x 4 x 4"),
        (Datum(encoded=True, data=b"no image").SerializeToString(), "record '00000005': can't be decoded as an image"),
        (Datum(channels=1, height=4, width=4, data=b"x").SerializeToString(), "'00000005': expected 16 values.*got 1"),
        (b"\xff\xff\xff", "record '00000005': 3 bytes that are not a Datum"),
    ],
    ids=["label too large", "negative label", "another size", "undecodable image", "too little data", "no Datum"],
)
def test_a_bad_record_is_named_by_its_key(refused, odd, said):
    write_records(*[grey()] * 5, odd, *[grey()] * 5)
    assert re.search(f"scaffe: .*db.*{said}|scaffe: layer 'loss': {said}", refused(*train()))


def test_a_bad_first_record_is_named_before_training(refused):
    write_records(Datum(encoded=True, data=b"no image").SerializeToString(), grey())
    assert "db: record '00000000': can't be decoded as an image" in refused(*train())


def test_an_empty_lmdb_is_said_to_hold_no_records(refused):
    import lmdb

    os.unlink("db/data.mdb")
    with lmdb.open("db", lock=False):
        pass
    assert "db: the LMDB holds no records" in refused(*train())


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.99])
def test_a_truncated_lmdb_is_refused_with_both_sizes(refused, part):
    size = os.path.getsize("db/data.mdb")
    os.truncate("db/data.mdb", int(size * part))
    line = refused(*train())
    assert line.startswith("scaffe: db/data.mdb: ")
    assert f"{int(size * part)} " in line


# Weights and snapshots that belong elsewhere.


def test_weights_of_another_shape_are_told_with_layer_and_both_shapes(refused, folder):
    model, _ = trained(folder)
    edit("net.prototxt", "num_output: 10", "num_output: 12")
    said = "layer 'ip', blob 0: shape (12, 16) in the net, (10, 16) in the file"
    assert said in refused(*train("--weights", model))
    assert said in refused("test", "--model", "net.prototxt", "--weights", model)


def test_another_number_of_blobs_is_told(refused, folder):
    model, _ = trained(folder)
    edit("net.prototxt", "num_output: 10", "num_output: 10 bias_term: false")
    assert "layer 'ip': 1 parameter blobs in the net, 2 in the file" in refused(*train("--weights", model))


def test_weights_and_snapshots_are_not_taken_for_each_other(refused, folder):
    model, state = trained(folder)
    assert f"{model}: not a solver state; weights (.caffemodel) are given with --weights" in refused(
        *train("--snapshot", model)
    )
    for command in (train("--weights", state), ("test", "--model", "net.prototxt", "--weights", state)):
        assert f"{state}: a solver state where weights are expected; give it to --snapshot" in refused(*command)


def test_prototxt_files_are_not_taken_for_weights_or_snapshots(refused):
    assert "net.prototxt: not a binary NetParameter" in refused(*train("--weights", "net.prototxt"))
    assert "net.prototxt: not a solver state" in refused(*train("--snapshot", "net.prototxt"))


def rewrite(path, change):
    state = SolverState.FromString(path.read_bytes())
    change(state)
    path.write_bytes(state.SerializeToString())


def test_the_state_of_another_solver_type_is_refused(refused, folder):
    _, state = trained(folder)
    rewrite(state, lambda s: setattr(s, "solver_type", "Adam"))
    assert f"{state}: the state of a solver of type Adam; this one's is SGD" in refused(*train("--snapshot", state))


def test_the_history_of_caffes_adam_is_refused(refused, folder):
    _, state = trained(folder)

    def as_caffe_writes_adam(s):
        for field in ("solver_type", "random_seed", "position"):
            s.ClearField(field)
        s.history.extend(list(s.history))

    rewrite(state, as_caffe_writes_adam)
    assert "4 history blobs, but SGD with this net has 2" in refused(*train("--snapshot", state))


def test_the_state_of_another_net_is_refused_and_changes_nothing(refused, folder):
    _, state = trained(folder)
    edit("net.prototxt", "num_output: 10", "num_output: 12")
    assert "history of ip[0]: shape (12, 16) in the net, (10, 16) in the file" in refused(*train("--snapshot", state))


def test_a_state_without_its_weights_is_refused(refused, folder):
    model, state = trained(folder)
    model.unlink()
    assert f"{state}: its weights 'snap_iter_4.caffemodel' are missing" in refused(*train("--snapshot", state))


@pytest.mark.parametrize("part", [0, 0.3, 0.9])
def test_truncated_weights_and_states_are_refused(refused, folder, part):
    model, state = trained(folder)
    for path in (model, state):
        os.truncate(path, int(path.stat().st_size * part))
    assert str(model) in refused(*train("--weights", model))
    assert str(state) in refused(*train("--snapshot", state))


def test_snapshot_and_weights_together_are_refused(refused, folder):
    model, state = trained(folder)
    assert "not both" in refused(*train("--snapshot", state, "--weights", model))


# A loss that is not finite.


def poison(value):
    """Let record 12, of the second batch, hold numbers so large that the net's outputs overflow."""
    bad = Datum(channels=1, height=4, width=4, float_data=[value] * 16).SerializeToString()
    write_records(*[grey(label=i % 10) for i in range(12)], bad, *[grey()] * 3)


def test_a_loss_that_is_not_finite_ends_the_run_before_the_update(folder):
    poison(3e38)
    edit("net.prototxt", "scale: 0.00390625", "scale: 1")
    solver = scaffe.get_solver("solver.prototxt")
    solver.step(1)
    before = solver.net.packed.data.copy(), solver.rule.history[0].copy()
    with pytest.raises(DivergedError, match="not finite at iteration 1, learning rate 0.01: no update was applied"):
        solver.step(1)
    assert np.array_equal(before[0], solver.net.packed.data)
    assert np.array_equal(before[1], solver.rule.history[0])
    solver.close()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_data_that_is_not_finite_is_told_with_iteration_and_rate(refused, value):
    poison(value)
    assert re.search(
        "loss is not finite at iteration 1, learning rate 0.01: .*; newest snapshot: none$", refused(*train())
    )


def test_a_rate_that_is_too_large_names_the_newest_snapshot(folder, capsys):
    edit("solver.prototxt", "base_lr: 0.01", "base_lr: 1e38")
    edit("solver.prototxt", "snapshot: 2", "snapshot: 1")
    assert main(train()) == 2
    line = the_error(capsys.readouterr().err)
    assert re.search(r"at iteration (\d), learning rate 1e\+38: .*; newest snapshot: snap_iter_\1\.solverstate$", line)


# The command line itself.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("train", "--solver"),
        ("train --solver solver.prototxt --speed 9", "--speed"),
        ("train --solver solver.prototxt --scal medium", "'medium' .*strong.*weak"),
        ("train --solver solver.prototxt --keep-snapshots -1", "keep_snapshots must be 0 or more, got -1"),
        ("train --solver solver.prototxt --gpu 0", "computes on CPUs only"),
        ("test --model net.prototxt", "--weights"),
        ("test --model net.prototxt --weights w --iterations 0", "--iterations must be 1 or more, got 0"),
        ("tarin", "'tarin' .*train"),
        ("convert-imageset images list db", "list: no such file"),
        ("compute-image-mean no_db mean.binaryproto", "no_db: the LMDB can't be opened"),
        ("", "COMMAND"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(refused, arguments, said):
    assert re.search(said, refused(*arguments.split()))


# In processes of their own: the exit code that a shell sees, and faults that would hurt this one.


def python(*arguments):
    """Run an interpreter of its own."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())


def test_a_shell_sees_exit_code_2_and_one_line(folder):
    edit("net.prototxt", '"InnerProduct"', '"InnerProdukt"')
    run = python("-m", "scaffe", *train())
    assert (run.returncode, run.stdout) == (2, "")
    assert "unknown type 'InnerProdukt'" in the_error(run.stderr)


def wide(folder):
    """Make the snapshots large: two files of 4 MB each."""
    edit("net.prototxt", "num_output: 10", "num_output: 65536")


LIMITED = """
import resource, sys
from scaffe.cli import main
from scaffe.parallel.world import open_world

open_world()  # MPI writes files of its own
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
sys.exit(main(sys.argv[1:]))
"""


def test_a_file_that_grows_too_large_leaves_the_older_snapshot(folder):
    wide(folder)
    trained(folder)
    edit("solver.prototxt", "max_iter: 4", "max_iter: 8")
    before = files(folder)
    run = python("-c", LIMITED, *train("--snapshot", "auto"))
    assert run.returncode == 2
    assert re.search(r"snap_iter_6\.caffemodel: can't write \d+ bytes: file too large", the_error(run.stderr))
    assert files(folder) == before


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 12 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", disk], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"can't mount a small file system here: {mount.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_disk_that_fills_up_leaves_the_older_snapshot(folder, small_disk):
    wide(folder)
    edit("solver.prototxt", '"snap"', f'"{small_disk}/snap"')
    run = python("-m", "scaffe", *train())
    assert run.returncode == 2
    assert re.search(r"snap_iter_4\.caffemodel: can't write \d+ bytes: no space left on device", the_error(run.stderr))
    assert {path.name for path in small_disk.iterdir()} == {"snap_iter_2.caffemodel", "snap_iter_2.solverstate"}
    assert NetParameter.FromString((small_disk / "snap_iter_2.caffemodel").read_bytes()).layer[1].name == "ip"
