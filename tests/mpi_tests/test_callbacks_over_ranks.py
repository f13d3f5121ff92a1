"""Callbacks in a solver's step: on each rank those that it has added, and the same parameters as without."""

import nets
import numpy as np
import pytest
from mpi4py import MPI

from scaffe.training.solver import Solver

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", ["all", "last"])
def test_a_step_calls_them_on_the_ranks_that_have_added_them(tmp_path_factory, ranks):
    comm, calls = MPI.COMM_WORLD, []
    folder = nets.shared_folder(comm, tmp_path_factory, "callbacks", count=24, shape=(1, 4, 4))
    made, plain = (Solver(nets.solver_with(nets.softmax_regression(folder / "db"))) for _ in range(2))
    mine = ranks == "all" or comm.rank == comm.size - 1
    if mine:
        made.net.before_forward(lambda i: calls.append(("forward", i)))
        made.net.after_backward(lambda i: calls.append(("backward", i)))
    for solver in (made, plain):
        solver.step(2)
    layers = range(len(made.net.layers))
    once = [("forward", i) for i in layers] + [("backward", i) for i in reversed(layers)]
    assert calls == (once * 2 if mine else [])
    np.testing.assert_array_equal(made.net.packed.data, plain.net.packed.data)
    for solver in (made, plain):
        solver.close()


def test_an_array_that_one_rank_keeps_shows_the_layers_values(tmp_path_factory):
    comm, seen = MPI.COMM_WORLD, []
    folder = nets.shared_folder(comm, tmp_path_factory, "callback_arrays", count=24, shape=(1, 4, 4))
    solver = Solver(nets.solver_with(nets.softmax_regression(folder / "db")))
    solver.step(1)
    kept = solver.net.blobs["ip"].data
    last = solver.net._layer_names.index("ip")
    solver.net.after_forward(lambda i: seen.append(kept.copy()) if i == last else None)
    solver.step(1)
    np.testing.assert_array_equal(seen, [solver.net.blobs["ip"].data])
    solver.close()
