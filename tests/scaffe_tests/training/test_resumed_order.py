"""What a snapshot knows of the reading, and what a resume that reads otherwise is told."""

from __future__ import annotations

import nets
import pytest

from readers import Reading
from scaffe.proto import SolverParameter
from scaffe.proto.files import read_solver_state
from scaffe.training.solver import Solver

TEST_DATA = 'layer { name: "images" type: "Data" top: "data" top: "label" include { phase: %s }'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, count in (("db", 20), ("test_db", 12), ("more", 21)):
        nets.write_images(tmp_path / name, count, (1, 4, 4))
    return tmp_path


def solver(shuffle="", db="db", **fields):
    """Return a solver with a train and a test net over databases of their own."""
    train, rest = nets.softmax_regression(db).split('layer {\n  name: "ip"')
    head, data = train.split('layer {\n  name: "images" type: "Data" top: "data" top: "label"')
    layers = (TEST_DATA % phase + data.replace(db, name) for phase, name in (("TRAIN", db), ("TEST", "test_db")))
    net = head + "".join(layers) + 'layer {\n  name: "ip"' + rest
    param = nets.solver_with(net, snapshot_prefix="snap", test_iter=[3], test_interval=2, **fields)
    return Solver(param, reading=Reading(shuffle=shuffle))


def snapshot(**given):
    made = solver(**given)
    made.step(5)
    path = made.snapshot()
    made.close()
    return path


def keys_after(made, steps=1):
    made.step(steps)
    keys = made.net.layers[0].batch.keys
    made.close()
    return keys


@pytest.mark.parametrize("form", [SolverParameter.BINARYPROTO, SolverParameter.HDF5])
def test_a_snapshot_has_every_data_layers_position_records_and_order(form):
    if form == SolverParameter.HDF5:
        pytest.importorskip("h5py")
    state = read_solver_state(snapshot(shuffle="block:4", snapshot_format=form, random_seed=7))
    assert state.random_seed == 7
    assert [(p.net, p.layer, p.samples, p.records, p.shuffle) for p in state.position] == [
        ("train", "images", 40, 20, "block:4"),
        ("test 0", "images", 3 * 3 * 8, 12, "none"),
    ]


@pytest.mark.parametrize("shuffle", ["none", "full", "block:3"])
def test_a_resume_reads_on_in_the_same_order_and_is_told_nothing(shuffle, caplog):
    path = snapshot(shuffle=shuffle)
    straight, resumed = solver(shuffle=shuffle), solver(shuffle=shuffle)
    resumed.restore(path)
    assert keys_after(resumed) == keys_after(straight, 6)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_resume_with_another_order_is_told_which_to_give(caplog):
    path = snapshot(shuffle="block:4")
    made = solver(shuffle="full")
    made.restore(path)
    made.close()
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage() == (
        "train net, layer 'images': the snapshot was taken with shuffle 'block:4', this run has 'full': some samples "
        "of this epoch come twice, others not at all; give --shuffle block:4 to go on exactly"
    )


def test_a_resume_with_another_number_of_records_is_told_both(caplog):
    path = snapshot()
    made = solver(db="more")
    made.restore(path)
    made.close()
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "with 20 records, the source now has 21" in record.getMessage()
