"""Callbacks and apply_update over ranks: they see and change what those of one rank with the whole batch do."""

from __future__ import annotations

from itertools import product

import nets
import numpy as np
import pytest
from mpi4py import MPI
from strict_arrays import StrictDevice, StrictGpu

from scaffe.compute import Compute
from scaffe.errors import DivergedError
from scaffe.parallel.run import SYNCS, Run
from scaffe.parallel.workflows.workflow import registered
from scaffe.parallel.world import World
from scaffe.training.solver import Solver
from scaffe.training.solver_callbacks import SumOverRanks

COMM = MPI.COMM_WORLD
SIZES = sorted({1, min(3, COMM.size)})  # each size in the run on so many ranks
RUNS = [
    Run(name, sync, reduce="ring" if sync == "allreduce" else "chain", bucket_bytes="2K")
    for name, sync in product(registered(), SYNCS)
]
pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "callbacks")


def opened(folder, size, run, gpu=None, **fields):
    """Return a solver on `size` ranks, None on the others."""
    comm = COMM.Split(0 if COMM.rank < size else MPI.UNDEFINED)
    if comm == MPI.COMM_NULL:
        return None
    given = {"base_lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, **fields}
    param = nets.solver_with(nets.tower(folder / "db"), **given)
    world = World(comm)
    world.take_gpu(gpu)
    return Solver(param, world=world, run=run, compute=Compute(engine="reference"))


def parameters(solver):
    solver.close()
    return {p.label: p.blob.data.copy() for p in solver.net.parameters}


def with_functions(folder, size, run, seen=None, gpu=None, **fields):
    """Return the parameters after iterations whose functions change gradients and parameters."""
    solver = opened(folder, size, run, gpu, **fields)
    if solver is None:
        return None
    weights, bias = solver.net.params["ip1"]

    def on_start():
        if solver.iter == 3:
            weights.data[...] *= 0.5

    def on_gradients_ready():
        if seen is not None:
            seen.append((solver.iter, weights.diff.copy()))
        bias.diff[...] = 0.01

    solver.add_callback(on_start, on_gradients_ready)
    solver.step(4)
    solver.step(2)
    return parameters(solver)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.workflow}-{run.sync}")
@pytest.mark.parametrize("fields", [{}, {"clip_gradients": 0.5, "iter_size": 2}], ids=["plain", "clipped"])
def test_functions_change_what_they_change_on_one_rank(folder, run, fields):
    alone, expected = [], None
    for size in SIZES:
        seen = []
        ours = with_functions(folder, size, run, seen, **fields)
        if size == 1:
            alone, expected = COMM.bcast((seen, ours))
            continue
        for (iteration, sums), (first, whole) in zip(seen, alone if ours else (), strict=True):
            assert iteration == first
            np.testing.assert_allclose(sums, whole, rtol=1e-4, atol=1e-6)
        for label, values in (ours or {}).items():
            np.testing.assert_allclose(values, expected[label], rtol=1e-4, atol=1e-6, err_msg=label)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.workflow}-{run.sync}")
def test_on_devices_functions_read_and_write_host_copies(folder, run):
    expected_sums, sums = [], []
    expected = with_functions(folder, COMM.size, run, expected_sums)
    gpu = StrictGpu(StrictDevice(seed=COMM.rank, sharing=False))
    ours = with_functions(folder, COMM.size, run, sums, gpu)
    for (_, one), (_, other) in zip(sums, expected_sums, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    for label, values in ours.items():
        np.testing.assert_allclose(values, expected[label], rtol=1e-4, atol=1e-6, err_msg=label)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.workflow}-{run.sync}")
def test_all_ranks_see_the_same_sums_and_have_the_same_parameters(folder, run):
    seen = []
    ours = with_functions(folder, COMM.size, run, seen)
    for one in COMM.allgather((seen, ours)):
        for (_, sums), (_, mine) in zip(one[0], seen, strict=True):
            np.testing.assert_array_equal(sums, mine)
        for label, values in one[1].items():
            np.testing.assert_array_equal(values, ours[label])


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.workflow}-{run.sync}")
def test_before_an_iteration_functions_read_the_roots_parameters(folder, run):
    solver, seen = opened(folder, COMM.size, run), []
    bias = solver.net.params["ip1"][1]
    solver.add_callback(lambda: seen.append(bias.data.copy()), lambda: None)
    solver.step(3)
    seen.append(bias.data.copy())
    solver.close()
    assert all((one != other).any() for one, other in zip(seen, seen[1:], strict=False))
    np.testing.assert_array_equal(seen, COMM.bcast(seen))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.workflow}-{run.sync}")
def test_what_the_roots_function_writes_holds_for_all_ranks(folder, run):
    """The bits are those of all ranks writing the same."""

    def trained(writers):
        solver = opened(folder, COMM.size, run)
        bias = solver.net.params["ip1"][1]

        def on_start():
            if solver.iter == 2 and COMM.rank in writers:
                bias.data[...] += 0.5

        solver.add_callback(on_start, lambda: None)
        solver.step(4)
        return parameters(solver)

    expected, ours = trained(range(COMM.size)), trained([0])
    for label, values in ours.items():
        np.testing.assert_array_equal(values, expected[label], label)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.workflow}-{run.sync}")
def test_functions_of_one_rank_that_change_nothing_leave_the_bits(folder, run):
    calls = []

    def train(watched):
        solver = opened(folder, COMM.size, run)
        solver.step(2)
        if watched and solver.world.rank == COMM.size - 1:
            solver.add_callback(lambda: calls.append("start"), lambda: calls.append("before"))
            solver.add_callback(SumOverRanks())
            solver.add_callback(lambda: None, lambda: calls.append("after"))
        solver.step(3)
        return parameters(solver)

    expected, ours = train(watched=False), train(watched=True)
    for label, values in ours.items():
        np.testing.assert_array_equal(values, expected[label], label)
    assert calls == (["start", "before", "after"] * 3 if COMM.rank == COMM.size - 1 else [])


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.workflow}-{run.sync}")
def test_apply_update_has_the_bits_of_an_iteration(folder, run):
    fields = {"clip_gradients": 0.5, "lr_policy": "fixed"}
    stepped, applied = opened(folder, COMM.size, run, **fields), opened(folder, COMM.size, run, **fields)
    stepped.step(3)
    for _ in range(3):
        applied.net.clear_param_diffs()
        applied.net.forward()
        applied.net.backward()
        applied.apply_update()
    assert (stepped.iter, applied.iter) == (3, 0)
    expected = parameters(stepped)
    for label, values in parameters(applied).items():
        np.testing.assert_array_equal(values, expected[label], label)


@pytest.mark.parametrize("sync", SYNCS)
def test_apply_update_without_a_learning_rate_is_an_error_of_all_ranks(folder, sync):
    solver = opened(folder, COMM.size, Run(sync=sync), lr_policy="exp", gamma=1e30)
    solver.job.iter = 100
    with pytest.raises(DivergedError, match="the learning rate of iteration 100 is not a finite number"):
        solver.apply_update()
    solver.job.iter = 0
    solver.apply_update()
    solver.close()


@pytest.mark.parametrize("sync", SYNCS)
def test_apply_update_begins_with_what_the_root_has_written(folder, sync):
    solver = opened(folder, COMM.size, Run(sync=sync))
    solver.step(1)
    bias = solver.net.params["ip1"][1]
    bias.data[...] = 5.0 + COMM.rank
    solver.net.clear_param_diffs()
    solver.apply_update()
    after = bias.data.copy()
    solver.close()
    assert abs(after - 5).max() < 0.5
    np.testing.assert_array_equal(after, COMM.bcast(after))
