"""Objects that have memory take part with it."""

import array

import numpy as np
import pytest
from mpi4py import MPI

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size


class Held:
    """An object whose memory is known by `__array_interface__` alone."""

    def __init__(self, values):
        self.values = np.array(values, np.float32)
        self.__array_interface__ = self.values.__array_interface__


class ByDlpack:
    """An object whose memory is known by DLPack alone."""

    def __init__(self, values):
        self.values = np.array(values, np.float32)
        self.__dlpack__, self.__dlpack_device__ = self.values.__dlpack__, self.values.__dlpack_device__


@pytest.mark.parametrize(
    "kind", [Held, ByDlpack, lambda v: array.array("f", v), lambda v: memoryview(np.array(v, "f4"))]
)
def test_objects_with_memory_are_used_where_it_lies(comm, kind):
    for _ in range(2):
        given = kind([1.0, 2.0, RANK])
        comm.allreduce(given)
        found = given.values if hasattr(given, "values") else np.asarray(given)
        np.testing.assert_array_equal(found, [SIZE, 2 * SIZE, sum(range(SIZE))])


def test_a_tensor_of_pytorch_is_used_where_it_lies(comm):
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        tensor = torch.arange(4).to(dtype)
        comm.allreduce(tensor)
        assert tensor.tolist() == [0, SIZE, 2 * SIZE, 3 * SIZE]
