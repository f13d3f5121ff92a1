from __future__ import annotations

from pathlib import Path

import pytest

from scaffe.cli import main
from scaffe.timeline.overlap import summarise
from scaffe.timeline.trace import read_trace

SMALL = "simulate --net lenet --ranks 4 --cluster cluster-a --batch 16 --workflow SC-OBR --reduce chain"


def test_what_is_printed_is_what_the_timeline_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report's times are sums of meters; the timeline's are counted on its spans."""
    file = tmp_path / "simulated.json"
    assert main([*SMALL.split(), "--timeline", str(file)]) == 0
    printed = capsys.readouterr().out
    summary = summarise(read_trace(file))
    assert len(summary.trace.ranks) == 4
    assert f"SC-OBR: {1e3 * summary.total:.4g} ms" in printed
    for kind in ("propagation", "aggregation"):
        row = next(line.split() for line in printed.splitlines() if line.startswith(kind))
        assert float(row[1]) == pytest.approx(1e3 * summary.phases[kind].busy, rel=1e-3)
        assert float(row[3]) == pytest.approx(1e3 * summary.phases[kind].exposed, rel=1e-3)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ("--cluster nowhere", "unknown cluster 'nowhere'"),
        ("--net nothing", "'nothing' is no file and no model"),
        ("--ranks 0", "--ranks must be 1 or more"),
        ("--reduce slices", "'slices' is no schedule, so it can't be simulated"),
        ("--total 7", "--batch and --total"),
        ("--best --timeline a.json", "--best tries all workflows, and writes no timeline; leave --workflow out"),
        ("--timeline /nowhere/a.json", "--timeline '/nowhere/a.json': no such folder: /nowhere"),
        ("--profile missing.json", "missing.json: no such file"),
        ("--ranks 10001", "10001 ranks are too many to simulate (most: 10000); --best takes closed forms"),
        ("--iterations 1001", "--iterations must be 1000 or less, since all are alike; got 1001"),
        ("--chunk-bytes 1", "million messages are too many to simulate (most: 5): give --chunk-bytes 16 or more"),
    ],
)
def test_wrong_input_is_one_line(flags: str, error: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL.split(), *flags.split()]) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and error in lines[0]


def test_best_lists_the_ways_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    given = "simulate --net lenet --ranks 100000 --cluster ndr --batch 64 --best"
    assert main(given.split()) == 0
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(":")[0] for row in rows[-3:]] == ["Rival"] * 3
    rows = rows[:-3]
    assert first.startswith("100000 rank(s) of ndr, by closed forms")
    milliseconds = [float(row[40:52]) for row in rows]
    assert milliseconds == sorted(milliseconds) and len(rows) > 8


@pytest.mark.parametrize("flag", ["shown", "iterations"])
def test_best_takes_no_flag_that_says_nothing_to_it(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"simulate --net lenet --ranks 4 --cluster ndr --best --{flag} 3".split()) == 2
    assert f"leave --{flag} out" in capsys.readouterr().err
