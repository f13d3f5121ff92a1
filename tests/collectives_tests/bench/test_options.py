"""Sizes in units, and the files that the benchmark writes, which replace its own earlier ones alone."""

from argparse import Namespace

import pytest

from collectives import ArgumentError
from collectives.bench.options import check_outputs, parse
from collectives.bench.table import Measurement, write_json


def test_only_an_earlier_output_and_an_empty_file_are_replaced(tmp_path):
    pytest.importorskip("matplotlib")
    rows, picture, other = (str(tmp_path / name) for name in ("rows.json", "rows.png", "table.json"))
    for _ in range(2):  # no file, then an empty one
        check_outputs(Namespace(json=rows, plot=picture))
        for path in (rows, picture):
            open(path, "w").close()
    write_json([Measurement("reduce", "mpi", 2, 4, 1.0, 1.0, 1.0, 9)], rows)
    (tmp_path / "rows.png").write_bytes(b"\x89PNG\r\n")
    check_outputs(Namespace(json=rows, plot=picture))
    (tmp_path / "table.json").write_text('[\n {"op": "reduce"')  # of python -m collectives.tune
    for given in ({"json": other, "plot": None}, {"json": None, "plot": other}):
        with pytest.raises(ArgumentError, match=r"can't write .*: it is no earlier output of this benchmark"):
            check_outputs(Namespace(**given))


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
