"""Arrays that users keep of a solver's parameters, which lie in memory that a node's ranks share."""

import nets
import numpy as np
import pytest
from mpi4py import MPI

import scaffe
from collectives import Communicator
from scaffe.training.solver import Solver

pytestmark = pytest.mark.mpi


def test_arrays_and_nets_live_on_after_the_solver_is_closed(tmp_path_factory):
    comm = MPI.COMM_WORLD
    folder = nets.shared_folder(comm, tmp_path_factory, "held", count=24, shape=(1, 4, 4))
    solver = Solver(nets.solver_with(nets.softmax_regression(folder / "db")))
    deploy = scaffe.Net(solver.net.param, scaffe.TEST)
    deploy.share_with(solver.net)
    solver.step(2)
    blob = solver.net.params["ip"][0]
    arrays = [blob.data[1:], deploy.params["ip"][0].data.reshape(-1)] if comm.rank == 0 else []
    gradient = blob.diff[1:] if comm.rank == comm.size - 1 else None
    solver.close()
    trained, diff = blob.data.copy(), blob.diff.copy()
    assert trained.any() and np.shares_memory(blob.data, deploy.packed.data)
    if arrays:
        np.testing.assert_array_equal(arrays[0], trained[1:])
        np.testing.assert_array_equal(arrays[1], trained.reshape(-1))
        arrays[0][...] = 5
    if gradient is not None:
        np.testing.assert_array_equal(gradient, diff[1:])
    deploy.forward()
    solver.net.forward()
    assert (deploy.params["ip"][0].data[1:] == (5 if arrays else trained[1:])).all()
    deploy.close()
    solver.net.close()


@pytest.mark.parametrize("holder", [None, 0, -1])
def test_shared_memory_stays_on_all_ranks_while_one_holds_an_array_of_it(tmp_path_factory, monkeypatch, holder):
    comm, given, free = MPI.COMM_WORLD, [], Communicator.free

    def freed(collectives, windows=True):
        given.append((collectives, windows))
        free(collectives, windows=all(comm.allgather(windows)))  # alike, or ranks would wait for one another

    folder = nets.shared_folder(comm, tmp_path_factory, "one_holds", count=24, shape=(1, 4, 4))
    solver = Solver(nets.solver_with(nets.softmax_regression(folder / "db")))
    solver.step(1)
    mine = holder is not None and comm.rank == holder % comm.size
    held = solver.net.params["ip"][0].data if mine else None
    collectives = solver.parts.collectives
    monkeypatch.setattr(Communicator, "free", freed)
    solver.close()
    if comm.size > 1:
        assert [windows for one, windows in given if one is collectives] == [holder is None]
    if held is not None:
        np.testing.assert_array_equal(held, solver.net.params["ip"][0].data)
    solver.net.close()
