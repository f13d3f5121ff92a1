"""Tuning over MPI: a table is measured, written, merged and followed; nonsense is told before anything is measured."""

import pytest
from fake_device import FakeDevice
from mpi4py import MPI

from collectives import Communicator, Group, tune, tuning
from collectives.execution.device import aware, cuda

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.two_ranks]
COMM = MPI.COMM_WORLD
ROOT = COMM.rank == 0
QUICK = ["-m", "4K:64K", "--seconds", "0.2", "--chunk-bytes", "16K"]


@pytest.fixture
def folder(tmp_path):
    """Rank 0's folder, on all ranks."""
    return COMM.bcast(tmp_path)


def test_a_measured_table_is_followed_and_explained(folder, capsys):
    out = folder / "table.json"
    assert tune.main(["--ops", "reduce", "--shared", "--out", str(out), *QUICK]) == 0
    text = capsys.readouterr().out
    if ROOT:
        assert [line.split()[:3] for line in text.splitlines() if line.startswith("reduce")] == [
            ["reduce", "shared", "4096"],
            ["reduce", "shared", "16384"],
            ["reduce", "shared", "65536"],
        ]
        assert "Open MPI" in text or "MPICH" in text
    else:
        assert not text
    table = tuning.load(out)
    last = max(table.rows, key=lambda row: row.from_bytes)
    comm = Communicator(COMM, table=table)
    said = comm.explain("reduce", 1 << 20)
    assert f": {last.algorithm}" in said and str(out) in said and "measured on" in said
    array = comm.empty(1 << 18)
    array[...] = 1
    comm.reduce(array)
    assert not ROOT or (array == COMM.size).all()
    comm.free()


def test_devices_have_rows_of_their_own_with_nccl_among_the_candidates(folder, capsys, monkeypatch):
    device, timed = FakeDevice(seed=COMM.rank), set()
    monkeypatch.setattr(cuda, "find", lambda: device)
    monkeypatch.setattr(cuda, "take", lambda rank: None)
    monkeypatch.setenv(aware.VARIABLE, "0")
    clock = tune.Clock._time
    monkeypatch.setattr(tune.Clock, "_time", lambda *given: timed.add(given[1].algorithm) or clock(*given))
    out = folder / "table.json"
    options = ["--device", "--ops", "allreduce,reduce_scatter", "--out", str(out), "-m", "4K:16K", "--seconds", "0.2"]
    assert tune.main([*options, "--algorithms", "nccl,slices,ring", "--chunk-bytes", "4K"]) == 0
    assert timed >= {"mpi", "nccl"} and not any(len(stream.work) for stream in device.streams[:1])
    rows = tuning.load(out).rows
    assert {(row.op, row.memory, row.shared) for row in rows} == {
        (op, "device through host", True) for op in ("allreduce", "reduce_scatter")
    }
    text = capsys.readouterr().out
    assert not ROOT or "allreduce device" in text
    timed.clear()
    assert tune.main(["--device", "--ops", "allreduce", "-m", "4K:4K", "--seconds", "0.1"]) == 0
    assert "nccl" in timed


def test_the_environment_names_the_table_that_auto_follows(folder, monkeypatch):
    out = folder / "table.json"
    assert tune.main(["--ops", "reduce", "--shared", "--out", str(out), *QUICK]) == 0
    for is_named in (False, True):
        if is_named:
            monkeypatch.setenv("COLLECTIVES_TABLE", str(out))
        tuning.shipped.cache_clear()
        comm = Communicator(COMM)
        assert (str(out) in comm.explain("reduce", 1 << 20)) == is_named
        comm.free()
    tuning.shipped.cache_clear()


def test_a_second_run_keeps_what_it_does_not_measure(folder):
    out = folder / "table.json"
    for op in ("reduce", "allreduce"):
        assert tune.main(["--ops", op, "--foreign", "--out", str(out), *QUICK]) == 0
    assert {(row.op, row.shared) for row in tuning.load(out).rows} == {("reduce", False), ("allreduce", False)}


def test_only_the_algorithms_asked_for_are_measured(folder):
    out = folder / "table.json"
    options = ["--ops", "bcast", "--algorithms", "binomial", "--out", str(out)]
    assert tune.main([*options, *QUICK]) == 0
    assert {row.algorithm for row in tuning.load(out).rows} <= {"mpi", "binomial"}


def test_between_nodes_the_network_is_part_of_the_shape():
    comm = Communicator(COMM, group=Group.uniform(COMM.size))
    assert comm.shape == (COMM.size, 1, COMM.bcast(tuning.network()))
    comm.free()
    comm = Communicator(COMM, group=Group.uniform(COMM.size, COMM.size))
    assert comm.shape == (1, COMM.size, "")
    comm.free()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ops", "scan"], "--ops: unknown operation 'scan'; known are reduce, bcast, allreduce"),
        (["--seconds", "0"], "--seconds is 0; it must be more than 0"),
        (["--out", "/no/such/folder/t.json"], "/no/such/folder/t.json: can't be written: no such file or directory"),
        (["--algorithms", "magic", "-m", "4K:4K"], "unknown algorithm 'magic'"),
    ],
)
def test_nonsense_is_one_line_and_the_same_end_on_every_rank(capsys, options, said):
    assert tune.main(options) == 2
    output = capsys.readouterr()
    if ROOT:
        assert output.err.startswith("collectives.tune: ") and said in output.err and output.err.count("\n") == 1
    else:
        assert not output.err


@pytest.mark.parametrize("sizes", ["64K:1K", "2:64K", "many"])
def test_sizes_that_are_none_are_told_by_the_parser(capsys, sizes):
    with pytest.raises(SystemExit):
        tune.main(["-m", sizes])
    assert sizes in capsys.readouterr().err
