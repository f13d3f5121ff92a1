"""The benchmark on device buffers, over a fake device: what it times is done, and right, when the clock stops."""

import json
import re

import pytest
from fake_device import FakeDevice
from mpi4py import MPI

from collectives import ArgumentError, Communicator, bench
from collectives.bench import latency, times
from collectives.bench.options import parse
from collectives.bench.table import write_json
from collectives.execution.device import aware, cuda

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.two_ranks]
WORLD = MPI.COMM_WORLD
ROOT = WORLD.rank == 0
FEW = ["-i", "2", "-x", "1", "-d", "cuda"]


@pytest.fixture(params=["staged", "direct"])
def table(request, monkeypatch):
    """Return a function that benchmarks on a fake device and returns what was printed, and the rows."""
    monkeypatch.setenv(aware.VARIABLE, "1" if request.param == "direct" else "0")
    comm = Communicator(WORLD, device=FakeDevice(seed=WORLD.rank))

    def run(*argv):
        lines = []
        rows = bench.bench(comm, parse([*argv, *FEW], WORLD.rank), lambda text, **how: lines.append(text))
        return "\n".join(lines), rows

    yield run
    comm.free()


@pytest.mark.parametrize("op", ["reduce", "bcast", "allreduce"])
@pytest.mark.parametrize("place", [[], ["-l"]], ids=["", "in place"])
def test_all_ways_are_right_and_stand_beside_the_librarys(table, op, place):
    if op == "bcast" and place:
        pytest.skip("one buffer")
    text, rows = table(op, "-m", "128:256", "-c", "-u", "2", "--algorithm", "auto,mpi,chain,slices", *place)
    assert text.startswith(f"\n# OSU MPI-CUDA {'Broadcast' if op == 'bcast' else op.title()} Latency Test v7.5\n")
    assert all(row.valid for row in rows) and len(rows) == 8
    assert f"\n# {op} of 256 bytes in device memory, 1 node(s) with {WORLD.size} rank(s) each: " in text
    assert [row.ratio_to_mpi for row in rows if row.algorithm == "mpi"] == [1, 1]
    assert all(row.ratio_to_mpi > 0 for row in rows)


def test_a_root_that_rotates_and_calls_in_the_background(table):
    _, rows = table("ireduce", "-m", "128:128", "-c", "-k", "rotate", "-t", "3", "--algorithm", "chain,mpi")
    assert all(row.valid and row.overlap >= 0 for row in rows)


def test_the_last_line_says_how_arrays_travel(table, request):
    text, _ = table("reduce", "-m", "64:64", "--algorithm", "chain,mpi")
    direct = request.node.callspec.params["table"] == "direct"
    how = "MPI takes device pointers" if direct else "MPI takes copies in pinned memory"
    assert text.splitlines()[-1] == (
        f"# OSU's columns are those of chain; buffers: on a fake GPU; {how}; between ranks of a node: CUDA IPC."
    )


@pytest.mark.parametrize("algorithm", ["mpi", "slices", "chain"])
def test_the_clock_stops_when_the_device_has_done_it(table, algorithm, monkeypatch):
    open_work = []
    was = times.latencies

    def look(comm, runs, warmup, iterations):
        def looked(run, i):
            run(i)
            device = run.__self__.device
            open_work.append(sum(len(stream.work) for stream in device.streams))

        return was(comm, [lambda i, run=run: looked(run, i) for run in runs], warmup, iterations)

    monkeypatch.setattr(latency, "latencies", look)
    table("allreduce", "-m", "128:128", "--algorithm", algorithm)
    assert open_work and not any(open_work)


def test_wrong_numbers_are_told(table, monkeypatch):
    monkeypatch.setattr(times.Case, "run", lambda self, i: None)
    with pytest.raises(bench.WrongNumbers, match="allreduce by ring on message size 64"):
        table("allreduce", "-m", "64:64", "-c", "--algorithm", "ring")


def test_without_a_gpu_every_rank_ends_with_one_line(capsys, monkeypatch):
    def find():
        raise ArgumentError("device arrays need a GPU, CuPy finds none")

    monkeypatch.setattr(cuda, "find", find)
    assert bench.main(["reduce", *FEW]) == 2
    captured = capsys.readouterr()
    if ROOT:
        assert captured.err == "collectives.bench: -d cuda: device arrays need a GPU, CuPy finds none\n"
        assert captured.out == ""


def test_nccl_is_no_other_way_s_name(capsys, monkeypatch):
    device = FakeDevice(seed=WORLD.rank)
    device.identity = "the only one"
    monkeypatch.setattr(cuda, "take", lambda rank: None)
    monkeypatch.setattr(cuda, "find", lambda: device)
    assert bench.main(["reduce", "--algorithm", "nccl,mpi", *FEW]) == 2
    if ROOT:
        why = "NCCL takes one rank a GPU, and ranks 0 and 1 share one"
        assert capsys.readouterr().err == f"collectives.bench: argument --algorithm: no nccl here: {why}\n"


def test_host_buffers_alone_can_be_foreign(capsys):
    assert bench.main(["reduce", "--foreign", *FEW]) == 2
    if ROOT:
        assert re.match("collectives.bench: argument --foreign: .* leave out -d cuda", capsys.readouterr().err)


def test_rows_are_kept(table, tmp_path):
    _, rows = table("reduce", "-m", "64:64", "--algorithm", "chain,mpi")
    write_json(rows, str(tmp_path / "rows.json"))
    assert [row["algorithm"] for row in json.loads((tmp_path / "rows.json").read_text())] == ["chain", "mpi"]
