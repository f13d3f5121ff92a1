"""The files that the benchmark writes replace its own earlier ones alone."""

from argparse import Namespace

import pytest

from collectives import ArgumentError
from collectives.bench.options import check_outputs
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
