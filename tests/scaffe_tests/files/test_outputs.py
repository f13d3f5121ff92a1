"""Outputs replace earlier outputs and empty files, and nothing that a command reads or another tool has written."""

import os
from pathlib import Path

import nets
import numpy as np
import pytest
from log_specimens import whole

from readers import write_mean
from scaffe.cli import main
from scaffe.errors import ScaffeError
from scaffe.files.outputs import check_output, check_replaced, net_files, replaced_by_snapshots
from scaffe.proto import SolverParameter
from scaffe.proto.kinds import HDF5, PICTURE


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


NET = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 } } }'
COMMANDS = [
    "plot-log a.log --csv out",
    "plot-log a.log out.svg",
    "compute-image-mean db out",
    "inspect-db db --plot out.png",
    "upgrade-net net.prototxt out",
    "upgrade-solver solver.prototxt out",
    "draw-net net.prototxt out.dot",
    "time --model net.prototxt --iterations 1 --profile out.json --plan out.plan",
    "train --solver solver.prototxt --timeline out.json --metrics out.prom --plan out.plan",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_replaces_its_own_output_and_an_empty_file(folder, command):
    Path("a.log").write_text(whole())
    nets.write_images(folder / "db", 20, (1, 4, 4))
    Path("net.prototxt").write_text(nets.softmax_regression("db"))
    Path("solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1 snapshot: 0')
    for name in ("out", "out.svg", "out.png", "out.dot", "out.json", "out.prom", "out.plan", "out.caffemodel"):
        Path(name).touch()
    assert main(command.split()) == 0
    written = {path: path.stat().st_ino for path in folder.glob("out*") if path.stat().st_size}
    assert written and main(command.split()) == 0


def test_what_is_no_file_and_what_is_of_no_known_kind_may_be_replaced():
    Path("notes.txt").write_text("of no kind")
    os.mkfifo("pipe")
    for path in ("/dev/null", "/dev/stdout", "pipe", "none", ".", "notes.txt"):
        check_replaced("OUT", path)
    with pytest.raises(ScaffeError, match=r"OUT '\.': is a folder"):
        check_output("OUT", ".")


def test_an_input_is_known_by_each_of_its_names(folder):
    Path("in").write_text("of no kind")
    os.link("in", "hard")
    os.symlink("in", "link")
    for name in ("in", "hard", "link", folder / "in", "./in"):
        with pytest.raises(ScaffeError, match=r"is an input of this command, in; name another file$"):
            check_replaced("OUT", name, [None, "", "missing", "in"])


def test_the_files_that_a_nets_layers_read_are_inputs():
    Path("list").write_text("a.h5 b.h5\n c.h5\n")
    layers = [
        'type: "HDF5Data" hdf5_data_param { source: "list" }',
        'type: "Data" data_param { source: "db" } transform_param { mean_file: "mean" }',
        'type: "InfogainLoss" infogain_loss_param { source: "gain" }',
    ]
    Path("net").write_text(" ".join(f"layer {{ {layer} }}" for layer in layers))
    assert set(net_files(["net", "missing"])) == {
        *("net", "missing", "list", "a.h5", "b.h5", "c.h5", "db", "mean", "gain"),
    }


@pytest.mark.parametrize(
    ("at", "fields", "replaced"),
    [
        (4, {}, True),
        (4, {"snapshot": 3}, False),
        (8, {}, False),
        (6, {"snapshot": 0}, True),
        (6, {"snapshot": 4, "snapshot_after_train": False}, False),
    ],
)
def test_weights_that_a_snapshot_will_replace_are_told(at, fields, replaced):
    param = SolverParameter(**{"snapshot_prefix": "s[1]", "snapshot": 2, "max_iter": 6, **fields})
    weights = f"s[1]_iter_{at}.caffemodel"
    Path(weights).write_bytes(b"x")
    os.link(weights, "hard")
    names = [weights, "hard", "missing"]
    assert replaced_by_snapshots(param, names) == names[: 2 * replaced]


def test_a_kind_is_known_by_the_content_and_a_damaged_file_by_its_name():
    import h5py

    with h5py.File("rows.h5", "w") as file:
        file["x"] = np.zeros(3)
    Path("picture").write_bytes(b"\x89PNG\r\n")
    check_replaced("OUT", "rows.h5", own=[HDF5])
    check_replaced("OUT", "picture", own=[PICTURE])
    for name in ("rows.h5", "picture"):
        with pytest.raises(ScaffeError, match=r"is an HDF5 file|is a picture"):
            check_replaced("OUT", name)
    write_mean("mean", np.zeros((3, 4, 4), np.float32))
    check_replaced("OUT", "mean")
    for name, kind in (
        ("a.caffemodel", "weights"),
        ("a.solverstate.h5", "a solver state"),
        ("a.prototxt", "a prototxt"),
    ):
        Path(name).write_bytes(b"\xff\x00damaged")
        with pytest.raises(ScaffeError, match=f"OUT '{name}': is {kind}, which would be replaced"):
            check_replaced("OUT", name)


def test_a_layer_does_not_write_over_weights(folder):
    Path("w.caffemodel").write_bytes(b"\xff\x00damaged")
    import scaffe

    text = NET.replace('top: "data"', 'top: "data" top: "label"').replace("dim: 1 }", "dim: 1 }  shape { dim: 1 }")
    Path("n.prototxt").write_text(
        f'{text} layer {{ name: "o" type: "HDF5Output" bottom: "data" bottom: "label" '
        'hdf5_output_param { file_name: "w.caffemodel" } }'
    )
    with pytest.raises(ScaffeError, match="layer 'o': file_name 'w.caffemodel': is weights"):
        scaffe.Net("n.prototxt", scaffe.TEST)
