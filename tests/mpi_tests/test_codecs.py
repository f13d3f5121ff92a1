"""Messages in other numbers: sums stay near float32's, all ranks have the same, and feedback loses nothing for long."""

import numpy as np
import pytest
from mpi4py import MPI

from collectives import AlgorithmError, ArgumentError, Staged
from collectives.codecs import BLOCK, CODECS

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
LENGTH = 1001
ERRORS = {"bf16": 2**-8, "float16": 2**-10, "int8": 1 / 200}


def rows():
    return np.random.default_rng(7).standard_normal((SIZE, LENGTH)).astype(np.float32)


@pytest.mark.parametrize("name", CODECS)
def test_what_is_decoded_is_near_zeros_are_zeros_and_a_nan_stays(name):
    codec = CODECS[name]()
    for count in (1, BLOCK, BLOCK + 1, 5 * BLOCK):
        values = np.random.default_rng(count).standard_normal(count).astype(np.float32)
        message, found = np.empty(codec.nbytes(count), np.uint8), np.empty(count, np.float32)
        codec.encode(values, message)
        codec.decode(message, found)
        assert np.abs(found - values).max() <= ERRORS[name] * np.abs(values).max()
        codec.encode(np.zeros(count, np.float32), message)
        codec.decode(message, found)
        assert not found.any()
        values[0] = np.nan
        codec.encode(values, message)
        codec.decode(message, found)
        assert np.isnan(found[0])


def test_bfloat16_is_rounded_to_nearest_and_ties_to_even():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    bits = np.random.default_rng(3).integers(0, 1 << 32, 100_000, np.uint64).astype(np.uint32)
    values = np.concatenate([bits.view(np.float32), np.float32([0, -0.0, np.inf, -np.inf, 3.4e38, 1.00390625])])
    values = values[~np.isnan(values)]
    codec, message, found = CODECS["bf16"](), np.empty(2 * values.size, np.uint8), np.empty_like(values)
    codec.encode(values, message)
    codec.decode(message, found)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, values.astype(bfloat16).astype(np.float32))


@pytest.mark.parametrize("algorithm", ["auto", "ring", "halving", "chain", "binomial", "two-tree"])
@pytest.mark.parametrize("numbers", ["bf16", "float16", "int8", "bf16+feedback"])
def test_an_allreduce_is_near_and_the_same_on_all_ranks(comm, algorithm, numbers):
    array = rows()[RANK].copy()
    comm.plan("allreduce", array, algorithm=algorithm, chunk_bytes=400, numbers=numbers).run()
    tolerance = 2 * SIZE * ERRORS[numbers.partition("+")[0]] * np.abs(rows()).max()
    np.testing.assert_allclose(array, rows().sum(0), atol=tolerance)
    assert len(set(COMM.allgather(array.tobytes()))) == 1


def test_a_broadcast_leaves_the_roots_numbers_as_they_are(comm):
    array = rows()[RANK].copy()
    comm.plan("bcast", array, root=SIZE - 1, algorithm="chain", numbers="bf16").run()
    given = rows()[SIZE - 1]
    if RANK == SIZE - 1:
        np.testing.assert_array_equal(array, given)
    else:
        np.testing.assert_allclose(array, given, rtol=2**-8)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("feedback", ["", "+feedback"])
def test_with_feedback_the_sums_of_many_rounds_are_right(comm, feedback):
    """A value that int8 rounds to 0 beside a large one arrives in the end; without feedback it never does."""
    array, total = np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float64)
    staged = Staged(comm, "reduce", [array], algorithm="chain", numbers="int8" + feedback)
    for _ in range(200):
        array[:] = 1e-3
        array[0] = 1.0
        staged.start(ready=True)
        staged.wait()
        total += array
    staged.free()
    if RANK == 0:
        lost = abs(total[1] - 200 * SIZE * 1e-3)
        assert lost < 0.02 * SIZE if feedback else lost > 0.1


def test_what_cannot_be_coded_is_named(comm):
    array = rows()[RANK].copy()
    for given, said in (
        ({"numbers": "int4"}, "unknown numbers 'int4'; known are bf16, float16, int8"),
        ({"numbers": 8}, "unknown numbers int"),
        ({"numbers": "bf16", "send": array.astype("f8")}, "'bf16' are for arrays of float32, got float64"),
        ({"numbers": "bf16", "send": array.astype("i4")}, "'bf16' are for arrays of float32, got int32"),
    ):
        with pytest.raises(ArgumentError, match=said):
            comm.plan(**{"what": "allreduce", "send": array} | given)
    with pytest.raises(AlgorithmError, match="algorithm 'slices' can't send bf16; schedules can"):
        comm.plan("allreduce", array, algorithm="slices", numbers="bf16")
