"""Collectives over MPI: every algorithm gives numpy's numbers on every rank, in every memory, by every root."""

import os
import weakref

import numpy as np
import pytest
from mpi4py import MPI

from collectives import (
    AlgorithmError,
    ArgumentError,
    Communicator,
    DisagreementError,
    Group,
    tuning,
)
from collectives.execution import execute, peer, plans, window
from collectives.execution.library import LibraryPlan
from collectives.execution.operations import OPERATIONS, TYPES
from collectives.tuning import Row, Table

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
TREES = ["chain", "binomial", "flat", "kary-2", "two-tree", "cb-2", "cc-2", "ccb-2"]
LEVELS = [f"{name}:levels" for name in TREES if name != "two-tree"]
BLOCKS = ("reduce_scatter", "allgather")
ALGORITHMS = {
    "reduce": ["auto", "mpi", "slices", "leaders-chain", "leaders-cb-2:levels", *TREES, *LEVELS],
    "bcast": ["auto", "mpi", "slices", "leaders-chain", *TREES],
    "allreduce": ["auto", "mpi", "slices", "leaders-ring", "ring", "halving", *TREES],
    **{what: ["auto", "mpi", "slices", "leaders-ring", "leaders-mpi", "ring", "halving"] for what in BLOCKS},
}
CASES = [(what, algorithm) for what, algorithms in ALGORITHMS.items() for algorithm in algorithms]
LEADERS = "leaders-chain", "leaders-ring"
LENGTHS = (0, 1, 2, 13, 1000)


@pytest.fixture(scope="module")
def nodes():
    """One rank a node, as if."""
    made = Communicator(COMM, group=Group.uniform(COMM.size))
    yield made
    made.free()


def rows(length, dtype, size=COMM.size):
    """Return all ranks' contributions: small whole numbers, whose sums are exact in every type."""
    drawn = [np.random.default_rng([rank, length]).integers(-9, 9, length) for rank in range(size)]
    return np.stack(drawn).astype(dtype)


def check(comm, what, length, dtype, op="sum", kind="own", **how):
    """Run one collective for two roots, in place and not, and compare."""
    everyone = rows(length, dtype)
    wide = everyone.astype(np.float64)
    want = {"sum": wide.sum, "mean": wide.mean, "max": wide.max, "min": wide.min}[op](0).astype(dtype)
    send, recv = comm.empty((2, length), dtype) if kind == "window" else np.empty((2, length), dtype)
    if what in BLOCKS:
        return check_blocks(comm, what, send, recv, everyone, want, op, **how)
    for root in {0, comm.size - 1}:
        send[...], recv[...] = everyone[comm.rank], 0
        if what == "bcast":
            comm.bcast(send, root, **how)
            np.testing.assert_array_equal(send, everyone[root])
            continue
        if what == "allreduce":
            comm.allreduce(send, recv, op, **how)
        else:
            comm.reduce(send, recv, op, root, **how)
        has_result = what == "allreduce" or comm.rank == root
        np.testing.assert_array_equal(send, everyone[comm.rank])
        np.testing.assert_array_equal(recv, want if has_result else 0)
        getattr(comm, what)(send, op=op, **how, **({} if what == "allreduce" else {"root": root}))  # in place
        np.testing.assert_array_equal(send, want if has_result else everyone[comm.rank])


def check_blocks(comm, what, send, recv, everyone, want, op, **how):
    """Do the same for a collective of blocks, of nearly equal and of other lengths, 0 included."""
    length = send.size
    uneven = np.diff([0, *sorted(np.random.default_rng(length).integers(0, length + 1, comm.size - 1)), length])
    for counts in (None, uneven, uneven.tolist(), tuple(map(int, uneven))):
        ends = np.arange(comm.size + 1) * length // comm.size if counts is None else np.cumsum([0, *uneven])
        block = slice(ends[comm.rank], ends[comm.rank + 1])
        send[...], recv[...] = everyone[comm.rank], -1
        if what == "reduce_scatter":
            comm.reduce_scatter(send, recv[block], op, counts=counts, **how)
            np.testing.assert_array_equal(send, everyone[comm.rank])
            assert (np.delete(recv, np.arange(length)[block]) == -1).all()
            comm.reduce_scatter(send, MPI.IN_PLACE, op, counts=counts, **how)
            for found in (send, recv):
                np.testing.assert_array_equal(found[block], want[block])
        else:
            pieced = np.concatenate([row[a:b] for row, a, b in zip(everyone, ends, ends[1:], strict=False)])
            comm.allgather(send[block], recv, counts=counts, **how)
            np.testing.assert_array_equal(recv, pieced)
            send[: block.start] = send[block.stop :] = -1
            comm.allgather(send, counts=counts, **how)
            np.testing.assert_array_equal(send, pieced)


@pytest.mark.parametrize(("what", "algorithm"), CASES)
def test_every_algorithm_gives_numpys_numbers(comm, nodes, what, algorithm):
    over = nodes if algorithm.startswith("leaders") else comm
    for length in LENGTHS:
        for kind in ("own", "window"):
            check(over, what, length, np.dtype("f4"), kind=kind, algorithm=algorithm, chunk_bytes=64)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("algorithm", ["auto", "mpi", "slices", "cb-2", "leaders-chain"])
def test_every_operation_in_every_type(comm, nodes, op, dtype, algorithm):
    if op == "mean" and dtype.kind == "i":
        pytest.skip("no mean of whole numbers")
    if algorithm == "mpi" and dtype == np.float16:
        with pytest.raises(AlgorithmError, match="'mpi' can't reduce float16, which MPI does not support"):
            comm.reduce(np.zeros(33, dtype), op=op, algorithm=algorithm)
        return
    check(nodes if algorithm.startswith("leaders") else comm, "reduce", 33, dtype, op, algorithm=algorithm)
    check(nodes if algorithm.startswith("leaders") else comm, "allreduce", 33, dtype, op, algorithm=algorithm)


def test_arrays_of_any_type_are_broadcast(comm):
    array = np.array([(comm.rank + 1, b"abc")], [("a", "f4"), ("b", "S3")])
    comm.bcast(array, comm.size - 1, algorithm="chain")
    assert array.tolist() == [(comm.size, b"abc")]


@pytest.mark.mpi(min_size=2)
def test_leaders_of_unequal_nodes_are_refused_and_of_equal_ones_work():
    halves = Communicator(COMM, group=Group.of([rank // 2 for rank in range(COMM.size)]))
    array = np.ones(100, np.float32)
    if COMM.size % 2:
        with pytest.raises(AlgorithmError, match="needs the same number of ranks on every node"):
            halves.allreduce(array, algorithm="leaders-ring")
    else:
        for what in ALGORITHMS:
            check(halves, what, 1000, np.dtype("f4"), algorithm=LEADERS[what in BLOCKS], chunk_bytes=256)
            check(halves, what, 1000, np.dtype("f4"), kind="window", algorithm=LEADERS[what in BLOCKS], chunk_bytes=256)
    halves.free()


@pytest.mark.mpi(min_size=4)
def test_leaders_of_nodes_whose_ranks_are_in_any_order():
    if COMM.size % 2:
        pytest.skip("nodes with as many ranks each")
    first, second = range(COMM.size // 2), reversed(range(COMM.size // 2))
    mixed = Communicator(COMM, group=Group.of([*first, *second]))
    for what in ALGORITHMS:
        check(mixed, what, 1000, np.dtype("f4"), algorithm=LEADERS[what in BLOCKS], chunk_bytes=256)
    mixed.free()


@pytest.mark.parametrize("algorithm", ["chain", "binomial", "cb-2", "ring", "halving", "two-tree", "slices"])
def test_a_run_repeats_bit_for_bit_and_all_ranks_have_the_same(comm, algorithm):
    values = np.random.default_rng(comm.rank).standard_normal(5000).astype(np.float32)
    found = []
    for _ in range(3):
        array = values.copy()
        comm.allreduce(array, algorithm=algorithm, chunk_bytes=1000)
        found.append(array.tobytes())
    assert len({*found, *COMM.allgather(found[0])}) == 1


@pytest.mark.parametrize("chunk_bytes", [4, 64, 1000, 1 << 20])
@pytest.mark.parametrize("algorithm", ["chain", "binomial", "cb-2", "cc-2"])
def test_the_length_of_chunks_changes_no_bit(comm, algorithm, chunk_bytes):
    values = np.random.default_rng(comm.rank).standard_normal(300).astype(np.float32)
    whole, chunked = values.copy(), values.copy()
    comm.reduce(whole, algorithm=algorithm, chunk_bytes=1 << 30)
    comm.reduce(chunked, algorithm=algorithm, chunk_bytes=chunk_bytes)
    np.testing.assert_array_equal(chunked, whole)


def test_the_size_of_a_chain_is_part_of_the_name_or_beside_it(comm):
    array = np.ones(10, np.float32)
    comm.allreduce(array, algorithm="cb", chain_size=2)
    assert array[0] == comm.size
    comm.reduce(array, algorithm="cb:levels", chain_size=2)
    assert comm.rank or array[0] == comm.size**2


def table(algorithm, **chunk):
    """Return a table that knows one algorithm for everything between nodes."""
    ops, kinds = ("reduce", "bcast", "allreduce"), (True, False)
    return Table([Row(op, 2, 1, shared, 0, algorithm, **chunk) for op in ops for shared in kinds], algorithm)


@pytest.mark.mpi(min_size=2)
def test_rank_0_chooses_for_all_whatever_the_tables_of_the_others():
    tables = [table("chain", chunk_bytes=64), table("binomial", chunk_bytes=400), table("mpi")]
    comm = Communicator(COMM, tables[min(COMM.rank, 2)], Group.uniform(COMM.size))
    array = np.ones(1000, np.float32)
    comm.allreduce(array)
    assert (array == comm.size).all()
    schedule = comm.plan("allreduce", array).schedule
    assert (schedule.algorithm, schedule.chunk) == ("chain", 16)
    assert ": chain in chunks of 64 bytes, best from 0 bytes" in comm.explain("allreduce", 4000)
    comm.free()


@pytest.mark.mpi(min_size=2)
def test_all_ranks_see_the_network_that_rank_0_sees(monkeypatch):
    monkeypatch.setattr(tuning, "network", lambda: f"the network of rank {COMM.rank}")
    comm = Communicator(COMM, group=Group.uniform(COMM.size))
    assert comm.shape.network == "the network of rank 0"
    comm.free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("odd", [0, COMM.size - 1])
def test_a_node_whose_processes_cannot_read_each_other_counts_for_all(monkeypatch, odd):
    monkeypatch.setattr(peer, "works", lambda local: COMM.rank != odd)
    comm = Communicator(COMM, table("leaders-chain"), Group.uniform(COMM.size))
    array = np.ones(100, np.float32)
    comm.allreduce(array)
    assert (array == comm.size).all() and isinstance(comm.plan("allreduce", array), LibraryPlan)
    comm.free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("odd", [0, COMM.size - 1])
def test_one_rank_whose_array_lies_in_no_window_counts_for_all(monkeypatch, odd):
    monkeypatch.setattr(peer, "works", lambda local: False)
    comm = Communicator(COMM, table("leaders-chain"), Group.uniform(COMM.size))
    window = comm.empty(100)
    own = np.zeros(100, np.float32) if COMM.rank == odd else window
    own[...] = 1
    comm.allreduce(own)
    assert (own == comm.size).all() and isinstance(comm.plan("allreduce", own), LibraryPlan)
    comm.free()


@pytest.mark.parametrize("odd", [0, COMM.size - 1])
def test_a_table_that_is_not_there_on_rank_0_is_an_error_on_all_and_elsewhere_none(monkeypatch, odd):
    tuning.shipped.cache_clear()
    if COMM.rank == odd:
        monkeypatch.setenv("COLLECTIVES_TABLE", "/nowhere.json")
    if odd == 0:
        with pytest.raises(ArgumentError, match=r"/nowhere.json: no such file"):
            Communicator(COMM)
    else:
        Communicator(COMM).free()
    tuning.shipped.cache_clear()


@pytest.mark.parametrize("first", ["own", "window"])
@pytest.mark.parametrize("algorithm", ["auto", "slices", "chain"])
def test_one_plan_serves_arrays_of_both_kinds(comm, algorithm, first):
    send, own, window = comm.empty(5000), np.empty(5000, np.float32), comm.empty(5000)
    send[...] = 1
    for recv in (own, window) if first == "own" else (window, own):
        recv[...] = 0
        comm.reduce(send, recv if comm.rank == 0 else None, algorithm=algorithm)
        assert comm.rank or (recv == comm.size).all()
    comm.give_back(send, window)


@pytest.mark.mpi(min_size=2)
def test_arrays_that_others_cannot_reach_are_named_where_a_plan_wants_windows():
    comm = Communicator(COMM)
    comm.node.has_peers = comm.has_peers = False
    window, own = comm.empty(1 << 20), np.ones(1 << 20, np.float32)
    comm.allreduce(window, algorithm="slices")
    with pytest.raises(
        ArgumentError, match="rank 0 of the node has its array where the others can't read it: allocate"
    ):
        comm.allreduce(own, algorithm="slices")
    comm.allreduce(window, algorithm="slices")
    comm.free()


@pytest.mark.parametrize("algorithm", ["chain", "ring", "leaders-chain"])
def test_arrays_that_take_turns_are_prepared_once_each(comm, nodes, algorithm):
    over = nodes if algorithm.startswith("leaders") else comm
    arrays, seen = [np.empty(1000, np.float32) for _ in range(4)], []
    for turn in range(3):
        for array in arrays:
            array[...] = comm.rank + turn
            plan = over.plan("allreduce", array, algorithm=algorithm, chunk_bytes=256)
            plan.run()
            seen.append(getattr(plan, "between", plan)._execution)
            assert (array == comm.size * turn + sum(range(comm.size))).all()
    assert len(set(map(id, seen))) == (1 if algorithm.startswith("leaders") else 4)


@pytest.mark.parametrize("algorithm", ["chain", "mpi"])
def test_arrays_of_long_ago_are_let_go(comm, algorithm):
    kept = []
    for _ in range(3 * plans.KEPT):
        array = np.ones(1000, np.float32)
        kept.append(weakref.ref(array))
        comm.allreduce(array, algorithm=algorithm)
    del array
    assert sum(ref() is not None for ref in kept) == plans.KEPT
    comm.forget()
    assert not any(ref() is not None for ref in kept)


# What can be wrong.


def ones(count):
    return np.ones(count, np.float32)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c, last: c.reduce(ones(4 + last)), "number of elements: rank 0 has '4', rank . has '5'"),
        (
            lambda c, last: c.reduce(ones(4).astype("f8" if last else "f4")),
            "type: rank 0 has 'float32', rank . has 'flo",
        ),
        (lambda c, last: c.reduce(ones(4), root=int(last)), "root: rank 0 has '0', rank . has '1'"),
        (lambda c, last: c.reduce(ones(7), algorithm="chain" if last else "mpi"), "algorithm: rank 0 has 'mpi"),
        (lambda c, last: c.allreduce(ones(6), op="max" if last else "sum"), "operation: rank 0 has 'allreduce s"),
    ],
)
def test_ranks_that_differ_are_told_so_and_the_communicator_goes_on(comm, call, said):
    with pytest.raises(DisagreementError, match=said):
        call(comm, comm.rank == comm.size - 1)
    array = np.ones(4, np.float32)
    comm.allreduce(array, check=True)
    assert array[0] == comm.size


@pytest.mark.mpi(min_size=2)
def test_an_array_that_is_wrong_on_one_rank_is_an_error_on_all(comm):
    wide = np.ones((4, 6), np.float32)
    frozen = np.ones(9, np.float32)
    frozen.flags.writeable = False
    last = comm.rank == comm.size - 1
    comm = comm.dup()
    for array, said in (
        (wide[:, :3] if last else wide[:, :3].copy(), "send must be contiguous, got shape"),
        (frozen if last else frozen.copy(), "recv is read-only"),
        ([1, 2] if last else frozen.copy(), "send must be a numpy array, got list"),
    ):
        with pytest.raises(ArgumentError, match=f"rank {comm.size - 1}: {said}"):
            comm.allreduce(array)
    comm.free()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"root": 99}, "root 99 is not one of"),
        ({"algorithm": "magic"}, "unknown algorithm 'magic'; known are chain"),
        ({"algorithm": "cb", "chain_size": 0}, "chain_size is 0; it must be at least 1"),
        ({"op": "xor"}, "unknown operation 'xor'"),
        ({"recv": np.ones(3, np.float32)}, "recv has 3 elements; expected 4"),
    ],
)
def test_nonsense_is_named(comm, how, said):
    how = {"recv": np.ones(4, np.float32)} | how
    if how.get("recv").size == 3 and comm.rank:
        how["root"] = comm.rank  # only the root's matters
    with pytest.raises((AlgorithmError, ArgumentError), match=said):
        comm.reduce(np.ones(4, np.float32), **how)


def test_a_verb_that_there_is_not_is_named(comm):
    for ask in (lambda: comm.explain("reduze", 1024), lambda: comm.plan("reduze", np.ones(4, np.float32))):
        with pytest.raises(ArgumentError, match="unknown collective 'reduze'; known are reduce, bcast, allreduce"):
            ask()


@pytest.mark.mpi(min_size=2)
def test_check_finds_what_a_plan_that_is_there_would_not(comm):
    same = np.ones(77, np.float32)
    other = np.ones(78, np.float32)
    comm.allreduce(same)
    comm.allreduce(other)
    with pytest.raises(DisagreementError, match="number of elements: rank 0 has '77'"):
        comm.allreduce(other if comm.rank else same, check=True)


@pytest.mark.parametrize("algorithm", ["auto", "mpi", "chain", "slices"])
def test_calls_that_alternate_between_arrays_find_the_right_ones(comm, algorithm):
    first, second = np.empty(7, np.float32), comm.empty(7)
    for turn in range(3):
        for array in (first, second, first.copy()):
            array[...] = comm.rank + turn
            comm.allreduce(array, algorithm=algorithm)
            assert (array == comm.size * turn + sum(range(comm.size))).all()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("algorithm", ["chain", "two-tree", "ring", "halving"])
def test_many_chunks_pass_though_a_rank_sends_only_so_much_ahead(comm, monkeypatch, algorithm):
    monkeypatch.setattr(execute, "IN_FLIGHT", 1)  # two messages
    array = np.arange(5000, dtype=np.float32)
    comm.allreduce(array, algorithm=algorithm, chunk_bytes=64)
    np.testing.assert_array_equal(array, comm.size * np.arange(5000))


def test_room_for_windows_is_that_of_the_folder_which_they_lie_in(comm, monkeypatch):
    free = os.statvfs("/dev/shm")
    free = free.f_bavail * free.f_frsize
    assert comm.has_room(free // (4 * comm.size))
    if comm.size > 1:
        assert not comm.has_room(free)
    monkeypatch.setattr(window, "FOLDER", "/nowhere")
    assert comm.has_room(1 << 60)
