"""Sizes in units, and the files that the benchmark writes, which replace its own earlier ones alone."""

from argparse import Namespace

import pytest

from collectives import ArgumentError
from collectives.bench.options import ROTATE, check_outputs, parse, sizes
from collectives.bench.table import Measurement, write_json


def test_only_an_earlier_output_and_an_empty_file_are_replaced(tmp_path):
    pytest.importorskip("matplotlib")
    rows, picture, other = (str(tmp_path / name) for name in ("rows.json", "rows.png", "table.json"))
    for _ in range(2):  # no file, then an empty one
        check_outputs(Namespace(json=rows, plot=picture, graph=()))
        for path in (rows, picture):
            open(path, "w").close()
    write_json([Measurement("reduce", "mpi", 2, 4, 1.0, 1.0, 1.0, 9)], rows)
    (tmp_path / "rows.png").write_bytes(b"\x89PNG\r\n")
    check_outputs(Namespace(json=rows, plot=picture, graph=()))
    (tmp_path / "table.json").write_text('[\n {"op": "reduce"')  # of python -m collectives.tune
    for given in ({"json": other, "plot": None}, {"json": None, "plot": other}):
        with pytest.raises(ArgumentError, match=r"can't write .*: it is no earlier output of this benchmark"):
            check_outputs(Namespace(**given, graph=()))


def test_a_graph_replaces_an_earlier_one_alone(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    given = parse(["reduce", "-G", "tty,pdf"], 0)
    check_outputs(given)
    (tmp_path / "osu_reduce.pdf").write_text("a letter")
    with pytest.raises(ArgumentError, match=r"can't write osu_reduce.pdf: it is no earlier output"):
        check_outputs(given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1M", (1, 1 << 20)), ("4:1K", (4, 1024)), ("64k:", (65536, 1 << 20)), ("8192:2m", (8192, 2 << 20))],
)
def test_sizes_have_units_as_osu_s(text, expected):
    assert parse(["reduce", "-m", text], 0).message_size == expected


@pytest.mark.parametrize("text", ["M", "1Q", "2K:1K", ":", "1.5M", "0", "1G:K"])
def test_sizes_that_are_none_are_named(text):
    with pytest.raises(ArgumentError, match=f"-m/--message-size: expected .MIN:.MAX in bytes, .* got '{text}'"):
        parse(["reduce", "-m", text], 0)


def test_options_are_osus_and_ours():
    given = "-i 7 -x 0 -f -c -u 2 -l -k fixed:1 -T MPI_INT -t 4 -M 2097152 -z --algorithm ring,mpi --chunk-bytes 64"
    found = parse(["ireduce", *given.split(), "--bound", "--python-share"], 0)
    assert (found.what, found.blocking, found.algorithms) == ("reduce", False, ["ring", "mpi"])
    assert (found.iterations, found.warmup, found.full, found.validation, found.validation_warmup) == (
        7,
        0,
        True,
        True,
        2,
    )
    assert (found.in_place, found.root, found.tests, found.mem_limit) == (True, 1, 4, 1 << 21)
    assert (found.tail_lat, found.chunk_bytes, found.bound, found.python_share) == ((50, 90, 99), 64, True, True)
    assert parse(["reduce", "-k", "rotate", "-z", "0,100"], 0).root == ROTATE
    assert parse(["reduce", "-z", "0,100"], 0).tail_lat == (0, 100)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["bcast", "-l"], "argument -l: bcast has one buffer and is always in place"),
        (["allreduce", "-k", "fixed:1"], "argument -k: allreduce has no root to choose"),
        (["reduce", "--algorithm", "mpi,"], "expected different names, got 'mpi,'"),
        (["reduce", "-z", "1,2,3,4,5,6"], "expected up to five percentiles from 0 to 100"),
    ],
)
def test_options_that_do_not_go_together_are_named(options, said):
    with pytest.raises(ArgumentError, match=said):
        parse(options, 0)


def test_sizes_double_up_to_the_limit_and_hold_an_element():
    assert sizes(parse(["reduce", "-m", "1:64"], 0), 4) == ([4, 8, 16, 32, 64], "")
    chosen, warning = sizes(parse(["reduce", "-m", "1M:8M", "-M", "2097152"], 0), 4)
    assert chosen == [1 << 20, 1 << 21] and warning.startswith("Warning! Limiting max message size to: 2097152.")
    chosen, warning = sizes(parse(["reduce", "-m", "1M:1M", "-M", "4"], 0), 4)
    assert chosen == [1 << 20] and warning == "Requested memory limit too low, using [1048576] instead."
