"""Vectors that differ from rank to rank, and their sums over the ranks: whole numbers, exact in float32."""

import numpy as np
from mpi4py import MPI

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
LENGTH = 3000


def values(seed):
    return np.arange(LENGTH, dtype=np.float32) % 50 + 100 * seed + RANK


def total(seed):
    return SIZE * (np.arange(LENGTH, dtype=np.float32) % 50 + 100 * seed) + sum(range(SIZE))
