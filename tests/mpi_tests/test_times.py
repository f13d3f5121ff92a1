"""What the benchmark times: which calls, by which arguments, and what it makes of their seconds."""

from argparse import Namespace

import numpy as np
import pytest
from mpi4py import MPI

from collectives.bench import times
from collectives.bench.options import parse

pytestmark = pytest.mark.mpi
WORLD = MPI.COMM_WORLD


WAYS = [
    *((op, []) for op in ("reduce", "bcast", "allreduce", "reduce_scatter", "allgather")),
    *((op, ["-l"]) for op in ("reduce", "allreduce", "reduce_scatter", "allgather")),
    ("reduce", ["-k", "rotate"]),
]


@pytest.mark.parametrize(("op", "way"), WAYS)
def test_the_library_is_called_as_our_algorithms_are_and_both_are_checked(comm, op, way):
    options = parse([op, "-u", "3", *way], WORLD.rank)
    options.type = "mpi_float"
    buffers = times.Buffers(comm, 400, options)
    for case in (
        times.LibraryCase(buffers, op, options),
        times.Case(buffers, op, "ring" if op[0] == "a" else "auto", options),
    ):
        assert case.is_right()
        seen = []
        case.run = seen.append
        assert not case.is_right() and seen == [0, 1, 2, 3]
        assert [case.at(i) for i in (0, 1, WORLD.size)] == ([0, 1 % WORLD.size, 0] if "rotate" in way else [0] * 3)
    buffers.free()


def test_calls_are_fewer_of_long_messages():
    asked = Namespace(warmup=None, iterations=None)
    assert [times.calls(asked, nbytes) for nbytes in (times.FEW, times.FEW + 1)] == [(100, 1000), (10, 100)]
    assert times.calls(Namespace(warmup=0, iterations=7), 4) == (0, 7)


def test_runs_take_turns_and_those_before_the_warm_up_s_end_do_not_count():
    seen = []
    runs = [lambda i, k=k: seen.append((k, i)) for k in range(2)]
    taken = times.latencies(WORLD, runs, 2, 3)
    assert seen == [(k, i) for i in range(5) for k in range(2)] and taken.shape == (2, 3) and (taken >= 0).all()


def test_averages_are_over_ranks():
    found = times.over_ranks(WORLD, np.array([1.0, 10 + WORLD.rank]))
    last = WORLD.size - 1
    assert found.tolist() == [[1, 1, 1], [10 + last / 2, 10, 10 + last]]


def test_percentiles_are_of_the_averages_over_ranks():
    taken = np.arange(200.0)[::-1] + WORLD.rank  # sorted, the k-th average is k + (size - 1) / 2
    middle = (WORLD.size - 1) / 2
    assert times.percentiles(WORLD, taken, (0, 50, 99, 100)) == {p: x + middle for p, x in PERCENTILES.items()}


PERCENTILES = {0: 0, 50: 99, 99: 197, 100: 199}


def test_the_hidden_part_is_osus_formula():
    phases = times.Phases.__new__(times.Phases)
    phases.whole, phases.compute = 15.0, 10.0
    assert phases.overlap(10.0) == 50 and phases.overlap(4.0) == 0  # 5 of 10 s are left; more than 4 s are


def test_a_computation_polls_between_its_parts():
    polls = []
    assert times._Work(0.0, 3).run(lambda: polls.append(1)) >= 0 and len(polls) == 3
    assert times._Work(0.0, 0).run(lambda: polls.append(1)) == 0 and len(polls) == 3
