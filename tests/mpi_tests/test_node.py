"""Collectives inside a node: every rank sums its slice, in windows and across processes' own memory."""

import os

import numpy as np
import pytest
from mpi4py import MPI

from collectives import peer
from collectives.errors import ArgumentError, DisagreementError
from collectives.node import BLOCK, Node
from collectives.operations import OPERATIONS, TYPES, operation

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
LENGTHS = (1, 2, 3, 7, 1000, 2 * BLOCK + 5)


@pytest.fixture(scope="module")
def node():
    node = Node(COMM.Dup())
    yield node
    node.free()


def values(rank, length, dtype):
    """Return small whole numbers: sums of them are exact in every type."""
    return np.random.default_rng([rank, length]).integers(-9, 9, length).astype(dtype)


def expected(op, length, dtype, size):
    rows = np.stack([values(rank, length, dtype).astype(np.float64) for rank in range(size)])
    return {"sum": rows.sum, "mean": rows.mean, "max": rows.max, "min": rows.min}[op](0)


def arrays(node, kind, length, dtype, count):
    if kind == "own":
        return [np.zeros(length, dtype) for _ in range(count)]
    whole = node.empty((count, length), dtype)
    return list(whole)


@pytest.mark.parametrize("kind", ["window", "own"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("op", OPERATIONS)
def test_reductions_are_numpys(node, kind, dtype, op):
    if op == "mean" and dtype.kind == "i":
        with pytest.raises(ArgumentError, match="mean of int"):
            operation(op, dtype)
        return
    if kind == "own" and not node.has_peers:
        pytest.skip("processes here can't read each other's memory")
    for length in LENGTHS:
        send, recv = arrays(node, kind, length, dtype, 2)
        want = expected(op, length, dtype, node.size).astype(dtype)
        send[...] = values(node.rank, length, dtype)
        node.allreduce(send, recv, OPERATIONS[op])
        np.testing.assert_array_equal(recv, want)
        for root in {0, node.size - 1}:
            recv[...] = 0
            node.reduce(send, recv if node.rank == root else None, OPERATIONS[op], root)
            np.testing.assert_array_equal(recv, want if node.rank == root else 0)
            np.testing.assert_array_equal(send, values(node.rank, length, dtype))
        node.reduce(send, send if node.rank == 0 else None, OPERATIONS[op], 0)  # in place
        np.testing.assert_array_equal(send, want if node.rank == 0 else values(node.rank, length, dtype))


@pytest.mark.parametrize("kind", ["window", "own"])
def test_broadcasts_reach_all(node, kind):
    for length in LENGTHS:
        (array,) = arrays(node, kind, length, np.dtype("f8"), 1)
        for root in {0, node.size - 1}:
            array[...] = values(node.rank, length, "f8")
            node.bcast(array, root)
            np.testing.assert_array_equal(array, values(root, length, "f8"))


def test_one_rank_in_a_window_and_the_others_not(node):
    window, own = node.empty((1000,), np.dtype("f4")), np.zeros(1000, np.float32)
    array = window if node.rank == 0 else own
    array[...] = node.rank
    node.allreduce(array, array, OPERATIONS["sum"])
    np.testing.assert_array_equal(array, np.full(1000, node.size * (node.size - 1) / 2))


def test_the_order_of_the_sum_is_that_of_the_ranks(node):
    length = 3 * BLOCK
    rng = [np.random.default_rng(rank).standard_normal(length).astype(np.float32) for rank in range(node.size)]
    want = rng[0].copy()
    for row in rng[1:]:
        want += row
    for kind in ("window", "own"):
        (array,) = arrays(node, kind, length, np.dtype("f4"), 1)
        array[...] = rng[node.rank]
        node.allreduce(array, array, OPERATIONS["sum"])
        np.testing.assert_array_equal(array, want)


def test_half_precision_is_added_in_single(node):
    array = np.full(10, 2049 if node.rank == 0 else 0.75, np.float16)  # 2048 + 0.75 is 2048 in half precision
    start = float(np.float16(2049))
    node.allreduce(array, array, OPERATIONS["sum"])
    np.testing.assert_array_equal(array, np.full(10, np.float16(np.float32(start + 0.75 * (node.size - 1)))))


@pytest.mark.mpi(min_size=2)
def test_different_lengths_are_told_to_all_ranks_and_do_no_harm(node):
    array = np.ones(100 + node.rank // (node.size - 1), np.float32)
    with pytest.raises(DisagreementError, match=f"rank 0 has 400, rank {node.size - 1} has 404"):
        node.allreduce(array, array, OPERATIONS["sum"])
    array = np.ones(5, np.float32)
    node.allreduce(array, array, OPERATIONS["sum"])
    assert array[0] == node.size


def test_memory_that_is_not_there_is_an_error():
    if not peer.works(COMM):
        pytest.skip("processes here can't read each other's memory")
    with pytest.raises(OSError, match=f"process {os.getpid()}: Bad address"):
        peer.read(peer.Place(os.getpid(), 8), np.empty(4, np.uint8))


def test_an_unknown_operation_is_named_with_the_known_ones():
    with pytest.raises(ArgumentError, match="unknown operation 'xor'; known operations: sum max min mean"):
        operation("xor", np.dtype("f4"))
    with pytest.raises(ArgumentError, match="arrays of complex64 can't be reduced; types that can: float32"):
        operation("sum", np.dtype("c8"))
