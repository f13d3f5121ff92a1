"""Sums: a layer's call waits until a drive has advanced its sum."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from scaffe.parallel.sums import Sums
from scaffe.parallel.world import World


def test_a_sum_is_waited_for_and_advanced_until_it_is_complete() -> None:
    begun: list[bool] = []

    def wait_until(is_done: Callable[[], bool]) -> None:
        begun.append(not is_done())
        while not is_done():
            sums.progress()

    sums = Sums(World(MPI.COMM_SELF.Dup()), wait_until)
    assert sums.idle() and not sums.progress()  # a drive that moves nothing may pause
    for values in ([1.5, 2.0], [3.0]):
        assert sums(values).tolist() == values
        assert sums.idle() and not sums.progress()
    assert begun == [True, True]
    sums.close()
