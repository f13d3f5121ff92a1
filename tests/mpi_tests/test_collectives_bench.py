"""The benchmark of collectives: OSU's table, and what is wrong on its command line."""

import json
import re

import pytest
from mpi4py import MPI

from collectives import bench

pytestmark = pytest.mark.mpi
ROOT = MPI.COMM_WORLD.rank == 0


def table(capsys):
    """Return the comment lines and the numbers of the others, as OSU's parsers read them."""
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ""
    return [x for x in lines if x.startswith("#")], [list(map(float, x.split())) for x in lines[1:] if x[0] != "#"]


@pytest.mark.parametrize("op", ["reduce", "bcast", "allreduce"])
def test_the_table_is_osus(capsys, tmp_path, op):
    path = tmp_path / "rows.json"
    options = ["-m", "4:64", "-i", "3", "-x", "1", "-f", "-c", "--algorithm", "chain,mpi", "--json", str(path)]
    assert bench.main([op, *options]) == 0
    if not ROOT:
        return
    comments, rows = table(capsys)
    assert re.fullmatch(r"# OSU MPI \w+ Latency Test v[\d.]+", comments[0])
    start = "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations"
    assert comments[-1].startswith(start)
    assert [row[0] for row in rows] == [4, 8, 16, 32, 64]
    for _, average, least, most, iterations, _ in rows:
        assert least <= average <= most and iterations == 3
    stored = json.loads(path.read_text())
    assert [(row["bytes"], row["algorithm"]) for row in stored[:2]] == [(4, "chain"), (4, "mpi")]
    assert stored[1]["ratio_to_mpi"] == 1


@pytest.mark.parametrize("op", ["ireduce", "ibcast", "iallreduce"])
@pytest.mark.parametrize("algorithm", ["mpi", "cb-2", "slices"])
def test_overlap_is_told_in_percent(capsys, op, algorithm):
    assert bench.main([op, "-m", "1024:4096", "-i", "2", "-x", "0", "--algorithm", algorithm, "--foreign"]) == 0
    if ROOT:
        comments, rows = table(capsys)
        assert comments[-1] == "# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)"
        assert [row[0] for row in rows] == [1024, 2048, 4096]
        assert all(row[4] >= 0 for row in rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-m", "8:4"], "message sizes '8:4': expected"),
        (["--algorithm", "magic"], "unknown tree algorithm 'magic'"),
        (["-d", "cuda"], "device buffers are not there yet"),
    ],
)
def test_nonsense_is_one_line(capsys, options, said):
    assert bench.main(["reduce", "-i", "1", "-x", "0", *options]) == 2
    text = capsys.readouterr().err
    assert (said in text and text.count("\n") == 1) if ROOT else not text
