"""The benchmark's lines: OSU's columns, then ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectives.bench.options import parse
from collectives.bench.table import Measurement, columns, footer, line, preamble, write_json

ROWS = [
    Measurement("reduce", "auto", 2, 64, 10.0, 9.0, 11.0, 100, ratio_to_mpi=2.0, valid=True, bound_us=5.0),
    Measurement("reduce", "mpi", 2, 64, 5.0, 4.0, 6.0, 100, ratio_to_mpi=1.0, valid=False),
]
TIMES = {"overall_us": 1.0, "compute_us": 2.0, "init_us": 3.0, "test_us": 4.0, "wait_us": 5.0, "overlap": 6.0}


def shown(*options: str, rows: list[Measurement] = ROWS) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in columns(parse(options, 0), rows)]


def test_osus_columns_stand_first() -> None:
    average = ("Avg Latency(us)", "10.00")
    assert shown("reduce") == [average]
    full = [average, ("Min Latency(us)", "9.00"), ("Max Latency(us)", "11.00"), ("Iterations", "100")]
    assert shown("reduce", "-f") == full
    assert line(parse(["reduce", "-f"], 0), ROWS) == "64".ljust(10) + "".join(
        value.rjust(12 if name == "Iterations" else 18) for name, value in full
    )


def test_non_blocking_collectives_have_phases() -> None:
    rows = [Measurement("ireduce", "auto", 2, 64, 10.0, 9.0, 11.0, 100, **TIMES)]
    values = [value for _, value in shown("ireduce", "-f", rows=rows)]
    assert values == ["1.00", "2.00", "3.00", "4.00", "5.00", "10.00", "9.00", "11.00", "6.00"]
    assert [value for _, value in shown("ireduce", rows=rows)] == ["1.00", "2.00", "10.00", "6.00"]


def test_others_averages_and_ratios_to_the_library_follow() -> None:
    found = shown("reduce", "--algorithm", "auto,mpi", "--bound", "-c", "--python-share")
    assert found[1:] == [
        ("Validation", "Fail"), ("mpi(us)", "5.00"), ("auto/mpi", "2.00"), ("Bound(us)", "5.00"), ("Bound/Avg", "-"),
        ("Python(%)", "-"),
    ]  # fmt: skip
    assert ("Validation", "Pass") in shown("reduce", "-c", rows=ROWS[:1])


def test_what_stands_above_and_below() -> None:
    options = parse(["ibcast", "-d", "cuda"], 0)
    options.type = "mpi_float"
    head = preamble(options).splitlines()
    assert head[1:3] == [
        "# OSU MPI-CUDA Non-blocking Broadcast Latency Test v7.5",
        "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait",
    ]
    assert head[4] == "# Datatype: MPI_FLOAT."
    assert footer(parse(["reduce"], 0)) == ""
    plain = footer(parse(["reduce", "--foreign"], 0))
    assert plain == "# OSU's columns are those of auto; buffers: plain."
    assert footer(parse(["reduce", "--algorithm", "mpi"], 0), "on GPU 0").endswith("mpi; buffers: on GPU 0.")


def test_rows_are_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.json"
    write_json(ROWS, str(path))
    assert [row["algorithm"] for row in json.loads(path.read_text())] == ["auto", "mpi"]
    monkeypatch.setattr(json, "dump", lambda *given, **how: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_json(ROWS, str(path))
    assert len(json.loads(path.read_text())) == 2
