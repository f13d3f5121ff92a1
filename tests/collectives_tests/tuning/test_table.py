from __future__ import annotations

import os

import pytest

from collectives import tune
from collectives.errors import ArgumentError
from collectives.tuning.table import FABRIC, TCP, Row, Shape, Table, check_writable, load, present

EIGHT = Shape(8, 1, TCP)


def row(nodes=8, ranks=1, from_bytes=0, algorithm="chain", op="reduce", shared=True, **more):
    return Row(op, nodes, ranks, shared, from_bytes, algorithm, **more)


def test_the_last_row_that_is_reached_of_the_nearest_shape_counts():
    table = Table([row(from_bytes=1000, algorithm="cb-4"), row(), row(nodes=64, algorithm="cb-8")], "t")
    assert table.choose("reduce", Shape(6, 1), True, 999).algorithm == "chain"
    assert table.choose("reduce", Shape(6, 1), True, 1000).algorithm == "cb-4"
    assert table.choose("reduce", Shape(60, 1), True, 1000).algorithm == "cb-8"


def test_times_of_two_rows_are_a_line():
    timed = [(1000, 0.011), (5000, 0.015), (3000, 0.5)]
    rows = [row(from_bytes=0), *(row(from_bytes=n, seconds=seconds) for n, seconds in timed)]
    shape = Shape(rows[0].nodes, rows[0].ranks)
    assert Table(rows, "x").line("reduce", shape, rows[0].shared) == pytest.approx((0.01, 1e-6))
    assert Table(rows[:2], "x").line("reduce", shape, rows[0].shared) is None
    assert Table(rows, "x").line("bcast", shape, rows[0].shared) is None


def test_rows_for_other_memory_other_networks_or_one_node_do_not_count():
    table = Table([row(network=TCP)], "t")
    assert table.choose("reduce", EIGHT, True, 1).algorithm == "chain"
    for shape, shared in ((EIGHT, False), (Shape(8, 1, FABRIC), True), (Shape(1, 8), True), (Shape(8, 2, TCP), True)):
        choice = table.choose("reduce", shape, shared, 1)
        assert choice.algorithm == "mpi" and "t has no row for" in choice.why
    assert Table([row()], "t").choose("reduce", Shape(8, 1, FABRIC), True, 1).algorithm == "chain"


def test_a_choice_says_from_where_it_comes_and_what_it_beat():
    found = {"seconds": 2e-3, "library_seconds": 8e-3, "next_best": "cb-4", "next_seconds": 3e-3}
    table = Table([row(from_bytes=64, chunk_bytes=32, source="measured on vm with Open MPI 5.0.11", **found)], "t.json")
    choice = table.choose("reduce", EIGHT, True, 100)
    assert str(choice) == "chain in chunks of 32 bytes"
    assert choice.why == (
        "best from 64 bytes on 8 node(s) with 1 rank(s) each in t.json; measured on vm with Open MPI 5.0.11: "
        "there 2000.0 us, 0.25 of the MPI library's; next cb-4, 1.50 times as long"
    )


def test_merging_replaces_the_rows_of_the_same_place_and_keeps_others():
    old = [row(), row(from_bytes=64, algorithm="cb-4"), row(op="bcast"), row(shared=False), row(nodes=4)]
    new = [row(algorithm="mpi"), row(from_bytes=128, algorithm="two-tree")]
    assert Table(old, "t").merged(new).rows == [*old[2:], *new]


def test_a_table_comes_back_from_its_file(tmp_path):
    rows = [row(network=TCP, source="x", seconds=1.5), row(shared=False, chunk_bytes=7)]
    path = tmp_path / "t.json"
    Table(rows, "t").save(path)
    assert load(path).rows == rows and load(path).source == str(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]


def test_a_file_that_cannot_be_written_is_told_and_left_alone(tmp_path):
    with pytest.raises(ArgumentError, match=r"no/t\.json: can't be written: no such file or directory"):
        check_writable(tmp_path / "no" / "t.json")
    (tmp_path / "t.json").write_text("{")
    with pytest.raises(ArgumentError, match="is not a table of python -m collectives.tune"):
        check_writable(tmp_path / "t.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ArgumentError, match="folder: can't be written: is a directory"):
        Table([row()], "t").save(tmp_path / "folder")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "t.json"]


def test_an_empty_file_is_a_table_to_fill(tmp_path):
    path = tmp_path / "t.json"
    assert present(path).rows == []
    path.touch()
    check_writable(path)
    present(path).merged([row()]).save(path)
    assert present(path).rows == [row()]


@pytest.mark.parametrize("link", [False, True])
def test_a_pipe_is_neither_waited_for_nor_replaced(tmp_path, link):
    """Nobody writes into it, so that reading it would wait for ever; and root could replace a device."""
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / ("link" if link else "pipe")
    if link:
        path.symlink_to(tmp_path / "pipe")
    for refused in (check_writable, load, Table([row()], "t").save):
        with pytest.raises(ArgumentError, match="is a device or a pipe; name a file"):
            refused(path)
    assert tune.main(["--from-model", "ethernet", "--out", str(path)]) == 2
    assert (tmp_path / "pipe").is_fifo() and path.is_symlink() == link
    assert len(list(tmp_path.iterdir())) == 1 + link
