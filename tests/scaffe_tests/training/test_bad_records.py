"""Records that can't be used, and losses that are not finite: told by key, iteration and rate."""

import os
import re

import numpy as np
import pytest
from bad_input import Refused, edit, grey, the_error, train, trainable, write_records

import scaffe
from scaffe.cli import main
from scaffe.errors import DivergedError
from scaffe.proto import Datum


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return trainable(tmp_path, monkeypatch)


@pytest.fixture
def refused(folder, capsys):
    return Refused(folder, capsys)


# Records.


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
    before = solver.net.packed.data.copy(), solver.parts.rule.history[0].copy()
    with pytest.raises(DivergedError, match="not finite at iteration 1, learning rate 0.01: no update was applied"):
        solver.step(1)
    assert np.array_equal(before[0], solver.net.packed.data)
    assert np.array_equal(before[1], solver.parts.rule.history[0])
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
