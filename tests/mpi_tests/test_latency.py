"""The benchmark of collectives: OSU's table as its readers see it, our columns beside it, and bad command lines."""

import json
import re

import numpy as np
import pytest
from an_algorithm_of_ours import added
from mpi4py import MPI

from collectives import Communicator, bench
from collectives.bench import table, times
from collectives.bench.options import parse
from collectives.errors import AlgorithmError, ArgumentError

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]
WORLD = MPI.COMM_WORLD
ROOT = WORLD.rank == 0
FEW = ["-i", "3", "-x", "1"]

# As osu_reduce -f of version 7.3 printed it, but for the numbers.
RECORDED = """
# OSU MPI Reduce Latency Test v7.5
# Datatype: MPI_FLOAT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                      53.34             24.80            158.96        1000
1024                   55.48             24.05            134.61        1000
1048576              2152.71            623.64          12127.55         100
"""
NON_BLOCKING = """
# OSU MPI Non-blocking Broadcast Latency Test v7.5
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Datatype: MPI_FLOAT.
# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
1024                    3.93              2.28              1.73              4.88
"""


@pytest.fixture
def run(capsys):
    """Return a function that runs the benchmark and returns what this rank printed."""

    def run(*argv, status=0):
        assert bench.main(argv) == status
        captured = capsys.readouterr()
        return captured.err if status == 2 else captured.out

    return run


def shape(text):
    """Return the text with each number replaced by its last column, so that only the format is left."""
    return [x if x.startswith("#") else [m.end() for m in re.finditer(r"\S+", x)][1:] for x in text.split("\n")]


def numbers(text):
    """Return the rows as awk '/^[0-9]/ {print $1, $2, ...}' sees them."""
    return [line.split() for line in text.splitlines() if re.match("[0-9]", line)]


def test_a_plain_table_has_osus_bytes_but_for_the_numbers(run):
    text = run("reduce", "-m", "4:4", "-f", *FEW)
    if ROOT:
        assert shape(text)[:5] == shape(RECORDED)[:5]
        assert shape(text)[5:] == [""] or shape(text)[5:] == [[]]


def test_a_plain_non_blocking_table_has_osus_bytes_but_for_the_numbers(run):
    text = run("ibcast", "-m", "1024:1024", *FEW)
    if ROOT:
        assert shape(text) == shape(NON_BLOCKING)


@pytest.mark.parametrize(("op", "name"), [("bcast", "Broadcast"), ("allreduce", "Allreduce")])
@pytest.mark.parametrize("device", [[], ["--foreign"]])
def test_one_size_a_line(run, op, name, device):
    text = run(op, "-m", "1:64", "-f", "-c", "-u", "1", *FEW, *device)
    if ROOT:
        assert text.startswith(f"\n# OSU MPI {name} Latency Test v7.5\n# Datatype: MPI_FLOAT.\n# Size ")
        rows = numbers(text)
        assert [int(row[0]) for row in rows] == [4, 8, 16, 32, 64]  # 1 and 2 hold no float
        for _, average, least, most, iterations, validation in rows:
            assert float(least) <= float(average) <= float(most)
            assert (iterations, validation) == ("3", "Pass")


def test_sizes_of_char_begin_at_one_byte(run):
    text = run("bcast", "-m", "1:4", "-T", "mpi_char", *FEW)
    if ROOT:
        assert "# Datatype: MPI_CHAR.\n" in text
        assert [row[0] for row in numbers(text)] == ["1", "2", "4"]


@pytest.mark.parametrize(("op", "types"), [("bcast", ["CHAR", "INT", "FLOAT"]), ("reduce", ["INT", "FLOAT"])])
def test_all_types_have_a_table_each_below_one_title(run, tmp_path, op, types):
    text = run(op, "-m", "4:8", "-T", "all", "-c", "-u", "0", *FEW, "--json", str(tmp_path / "rows.json"))
    if ROOT:
        lines = [line for line in text.splitlines() if line.startswith("#")]
        assert lines[0].startswith("# OSU MPI") and len(lines) == 1 + 2 * len(types)
        assert lines[1::2] == [f"# Datatype: MPI_{name}." for name in types]
        rows = json.loads((tmp_path / "rows.json").read_text())
        assert [(row["type"], row["bytes"]) for row in rows] == [
            (f"mpi_{name.lower()}", nbytes) for name in types for nbytes in (4, 8)
        ]


def test_some_types_are_measured_in_the_order_given(run):
    text = run("allreduce", "-m", "8:8", "-T", "MPI_FLOAT,mpi_int", *FEW)
    assert not ROOT or re.findall("# Datatype: (.*)[.]", text) == ["MPI_FLOAT", "MPI_INT"]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("cont", [64, 128]),
        ("vect:4:1", [16, 32]),
        ("vect:32:3", [0, 12]),
        (f"vect:{2**64}:{2**63}", [0, 0]),
        ("indx:FILE", [8, 24]),
    ],
)
def test_derived_types_send_a_part_of_the_bytes(run, tmp_path, given, sent):
    if ROOT:
        (tmp_path / "types.txt").write_text("# displacement, length\n1, 2\n14,4  # too long for 64 bytes\n")
    path = WORLD.bcast(str(tmp_path / "types.txt"))
    text = run("bcast", "-m", "64:128", "-c", "--algorithm", "mpi", "-D", given.replace("FILE", path), *FEW)
    if ROOT:
        assert text.splitlines()[3].endswith("        Validation     Transmit Size")
        assert [(row[2], int(row[3])) for row in numbers(text)] == [("Pass", nbytes) for nbytes in sent]


@pytest.mark.parametrize(("what", "more"), [("bcast", []), ("allgather", []), ("allgather", ["-l"])])
def test_only_the_elements_of_a_derived_type_arrive(what, more):
    """Of an allgather's blocks, which may differ by an element, each carries the type of the shortest."""
    text = [what, "-m", "64:64", "-T", "mpi_char", "-D", "vect:4:2", "--algorithm", "mpi", *more]
    options = parse(text, WORLD.rank)
    options.type = options.types[0]
    with Communicator(WORLD) as comm:
        case = times.DerivedCase(times.Buffers(comm, 64, options), what, options)
        case.vector[...] = 99
        case.send[...] = WORLD.rank + 1
        before = case.vector.copy()
        case.run(0)
        starts = [0] if what == "bcast" else [64 * k // WORLD.size for k in range(WORLD.size)]
        for root, start in enumerate(starts):
            for at in range(start, start + 64 // len(starts) // 4 * 4, 4):
                before[at : at + 2] = root + 1
        assert case.vector.tolist() == before.tolist()
        assert case.travels.sum() == len(starts) * (64 // len(starts) // 4 * 2)


def test_a_contiguous_type_is_what_schedules_send(run):
    text = run("bcast", "-m", "64:64", "-D", "cont", "--algorithm", "chain,mpi", "-c", *FEW)
    assert not ROOT or numbers(text)[0][2:4] == ["Pass", "64"]


def test_calls_are_drawn_in_the_terminal_and_in_files(run, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # an earlier one is replaced
        text = run("reduce", "-m", "4:8", "-i", "7", "-x", "0", "-G", "tty,png,pdf")
    if ROOT:
        assert [row[0] for row in numbers(text)] == ["4", "8"]
        drawn = [line for line in text.splitlines() if " |" in line]
        assert "# 4 bytes of mpi_float, 7 calls" in text and sum(line.count("*") for line in drawn) == 14
        assert (tmp_path / "osu_reduce.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "osu_reduce.pdf").read_bytes().startswith(b"%PDF")


def test_full_tables_of_non_blocking_ones_have_the_phases(run, tmp_path):
    path = str(tmp_path / "rows.json")
    text = run("ireduce", "-m", "4096:8192", "-f", "-c", "-t", "5", *FEW, "--algorithm", "cb-2,slices", "--json", path)
    if not ROOT:
        return
    names = re.split(r"\s{2,}", text.splitlines()[5])
    assert names[1:11] == [*table.PHASES, "Validation"]
    for row in json.loads((tmp_path / "rows.json").read_text()):
        phases = row["compute_us"] + row["init_us"] + row["test_us"] + row["wait_us"]
        assert phases == pytest.approx(row["overall_us"])
        hidden = 100 - 100 * (row["overall_us"] - row["compute_us"]) / row["avg_us"]
        assert row["overlap"] == pytest.approx(max(0, hidden))
        assert row["compute_us"] >= row["min_us"]  # it computes as long as the communication alone took


def test_algorithms_stand_beside_osus_columns_with_their_ratios_to_mpi(run, tmp_path):
    path = str(tmp_path / "rows.json")
    text = run("allreduce", "-m", "64:128", "--algorithm", "ring,mpi,slices", "--bound", "--json", path, *FEW)
    if not ROOT:
        return
    header = next(line for line in text.splitlines() if line.startswith("# Size"))
    assert header.split()[4:] == ["mpi(us)", "slices(us)", "ring/mpi", "slices/mpi", "Bound(us)", "Bound/Avg"]
    assert text.splitlines()[-1].startswith("# OSU's columns are those of ring;")
    stored = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["bytes"], row["algorithm"]) for row in stored[:3]] == [(64, "ring"), (64, "mpi"), (64, "slices")]
    ring, mpi, slices = stored[:3]
    assert mpi["ratio_to_mpi"] == 1
    assert ring["ratio_to_mpi"] == pytest.approx(ring["avg_us"] / mpi["avg_us"])
    shown = [ring["avg_us"], mpi["avg_us"], slices["avg_us"], ring["ratio_to_mpi"], slices["ratio_to_mpi"]]
    assert numbers(text)[0][1:6] == [f"{value:.2f}" for value in shown]
    assert ring["bound_us"] == slices["bound_us"] > 0
    assert slices["bound_fraction"] == pytest.approx(slices["bound_us"] / slices["avg_us"])


def test_percentiles_are_columns(run):
    text = run("reduce", "-m", "64:64", "-z", "50,99", "-k", "rotate", "-l", "-c", *FEW)
    if ROOT:
        assert text.splitlines()[3].endswith("        Validation  P50 Tail Lat(us)  P99 Tail Lat(us)")
        _, average, validation, middle, tail = numbers(text)[0]
        assert validation == "Pass" and float(middle) <= float(tail)


def test_wrong_numbers_are_told_and_end_the_run(run, monkeypatch):
    monkeypatch.setattr(times.Case, "run", lambda self, i: None)
    text = run("allreduce", "-m", "64:128", "-c", "--algorithm", "ring", *FEW, status=1)
    if ROOT:
        assert numbers(text)[0][2] == "Fail"
        assert text.splitlines()[-1] == "DATA VALIDATION ERROR: allreduce by ring on message size 64."
        assert len(numbers(text)) == 1


def test_the_memory_limit_is_a_warning_as_osus(capsys):
    assert bench.main(["bcast", "-m", "1048576:4194304", "-M", "1048576", "-i", "1", "-x", "0"]) == 0
    captured = capsys.readouterr()
    if ROOT:
        assert [row[0] for row in numbers(captured.out)] == ["1048576"]
        assert captured.err.startswith("Warning! Limiting max message size to: 1048576.")


def test_python_share_is_a_column_where_there_are_chunks(run):
    text = run("bcast", "-m", "2048:4096", "--python-share", "--chunk-bytes", "4096", "--algorithm", "chain", *FEW)
    if ROOT:
        (_, _, absent), (_, _, percent) = numbers(text)
        assert absent == "-" and float(percent) > 0


def test_given_back_arrays_leave_the_others_in_use():
    comm = Communicator(WORLD)
    first, second = comm.empty(8), comm.empty(8)
    second[...] = WORLD.rank
    comm.allreduce(first)
    comm.give_back(first)
    comm.allreduce(second, algorithm="slices")
    assert (second == sum(range(WORLD.size))).all()
    with pytest.raises(ArgumentError, match="only arrays that `empty` returned"):
        comm.give_back(np.zeros(8))
    comm.free()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-m", "8:4"], "argument -m/--message-size: expected [MIN:]MAX in bytes, 1 <= MIN <= MAX, got '8:4'"),
        (["-m", "4:x"], "got '4:x'"),
        (["-m", "1:2"], "argument -m: no size from 1 to 2 holds an element of 4 bytes"),
        (["-i", "0"], "expected a whole number from 1 on, got '0'"),
        (["-z", "50,101"], "expected up to five percentiles from 0 to 100, got '50,101'"),
        (["-k", "fixed:99"], f"expected a root below {WORLD.size}, the number of ranks, got 99"),
        (["-k", "first"], "expected fixed:RANK or rotate, got 'first'"),
        (["-T", "mpi_char"], "reduce adds mpi_int or mpi_float, got mpi_char"),
        (["-T", "mpi_byte"], "argument -T/--type: expected some of all, mpi_char, mpi_int, mpi_float, got 'mpi_byte'"),
        (["-D", "cont"], "argument -D: reduce has no derived types here; bcast and allgather have"),
        (["-D", "vect:2:3"], "expected cont, vect:STRIDE:BLOCK or indx:FILE, BLOCK at most STRIDE, got 'vect:2:3'"),
        (["-D", "indx:/nowhere"], "/nowhere: no such file or directory"),
        (["-G", "svg"], "argument -G/--graph: expected some of tty, png, pdf, got 'svg'"),
        (["-q"], "unrecognized arguments: -q"),
        (["--algorithm", "magic"], "unknown algorithm 'magic'"),
        (["--algorithm", "mpi,mpi"], "expected different names, got 'mpi,mpi'"),
        (["--json", "/nowhere/rows.json"], "can't write /nowhere/rows.json: no folder /nowhere"),
        (["--plot", "/"], "can't write /: a folder"),
    ],
)
def test_nonsense_is_one_line_before_any_table(capsys, options, said):
    assert bench.main(["reduce", "-m", "4:4", *FEW, *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (said in captured.err and captured.err.count("\n") == 1) if ROOT else not captured.err


def test_a_plot_without_matplotlib_is_refused_before_measuring(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert bench.main(["reduce", "--plot", str(tmp_path / "rows.png")]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and ("pip install 'scaffe[plot]'" in captured.err) == ROOT


def test_an_algorithm_that_is_added_as_a_file_is_measured_and_explained(run, tmp_path):
    with added(tmp_path):
        out = run("reduce", "-m", "1024:2048", "-c", "--algorithm", "trident,mpi", *FEW)
        comm = Communicator(WORLD)
        said = comm.explain("reduce", 1 << 20, algorithm="trident")
        array = np.full(99, WORLD.rank + 1, np.float32)
        comm.allreduce(array, algorithm="trident")
        comm.free()
    assert not ROOT or "trident" in out
    assert ": trident, as asked" in said
    assert (array == sum(range(1, WORLD.size + 1))).all()


def test_an_algorithm_that_nobody_knows_is_not_explained():
    comm = Communicator(WORLD)
    with pytest.raises(AlgorithmError, match="unknown algorithm 'magic'; known are chain"):
        comm.explain("reduce", 1 << 20, algorithm="magic")
    comm.free()
