"""Gradients in messages of fewer bytes: training stays near float32's, alike on all ranks, and goes on exactly."""

from dataclasses import replace

import nets
import numpy as np
import pytest
import short_trainings
from mpi4py import MPI
from short_trainings import values

from scaffe.compute import Compute
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.proto import SolverState
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi(min_size=2)
FORMS = {
    "root": {"owners": "root"},
    "spread": {"owners": "spread"},
    "slices": {"owners": "slices"},
    "allreduce": {"sync": "allreduce"},
}
ERRORS = {"bf16": 2**-8, "float16": 2**-10, "int8": 2**-6}
RUN = Run(workflow="SC-OBR", drive="hook", bucket_bytes="2K")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "gradient numbers")


def solver_of(folder, run, comm=COMM, instances="1", **fields):
    param = nets.solver_with(nets.tower(folder / "db"), **{"momentum": 0.9, **fields})
    instances = Instances(instances, oversubscribe=instances != "1")
    return Solver(param, world=World(comm), compute=Compute("reference"), run=run, instances=instances)


def train(folder, run, iterations=3, **options):
    """Return what so many iterations have added to the parameters, the same on all ranks."""
    solver = solver_of(folder, run, **options)
    before = values(solver)
    solver.step(iterations)
    moved = values(solver) - before
    solver.close()
    assert len({one.tobytes() for one in COMM.allgather(moved)}) == 1
    return moved


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workflow", ["SC-B", "SC-OBR"])
@pytest.mark.parametrize("numbers", ERRORS)
def test_training_is_near_that_with_float32(folder, numbers, workflow, form):
    run = replace(RUN, workflow=workflow, **FORMS[form])
    expected, found = train(folder, run), train(folder, replace(run, gradient_numbers=numbers))
    assert not np.array_equal(found, expected)
    assert np.abs(found - expected).max() <= 4 * COMM.size * ERRORS[numbers] * np.abs(expected).max()


def test_instances_round_their_sum_once(folder):
    run = replace(RUN, drive="auto", gradient_numbers="int8")
    expected, found = train(folder, replace(run, gradient_numbers="float32")), train(folder, run, instances="2")
    assert np.abs(found - expected).max() <= 4 * COMM.size * ERRORS["int8"] * np.abs(expected).max()


def snapshot(folder, name, run, **fields):
    return short_trainings.snapshot(solver_of(folder, run, snapshot_prefix=str(folder / name), **fields))


def resumed(folder, path, run, iterations=2, comm=COMM, **fields):
    solver = solver_of(folder, run, comm, **fields)
    solver.step(1)  # whose residuals a snapshot replaces
    solver.restore(path)
    solver.step(iterations)
    assert solver.parts.residuals.kept is None  # it is added once
    found = values(solver)
    solver.close()
    return found


@pytest.mark.two_ranks
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workflow", ["SC-B", "SC-OBR"])
def test_a_run_goes_on_to_the_bit_with_what_rounding_has_lost(folder, workflow, form):
    run = replace(RUN, workflow=workflow, gradient_numbers="int8", **FORMS[form])
    path, expected = snapshot(folder, f"{workflow} {form}", run)
    assert np.array_equal(resumed(folder, path, run), expected)


def test_an_hdf5_state_has_it_too(folder):
    run = replace(RUN, gradient_numbers="int8")
    path, expected = snapshot(folder, "hdf5", run, snapshot_format=0)
    assert np.array_equal(resumed(folder, path, run), expected)


def residual_of(path):
    state = SolverState()
    with open(path, "rb") as file:
        state.ParseFromString(file.read())
    return np.concatenate([np.array(one.data, np.float32) for one in state.residual])


def test_two_snapshots_in_a_row_have_the_same(folder):
    solver, found = solver_of(folder, replace(RUN, gradient_numbers="int8"), snapshot_prefix=str(folder / "row")), []
    solver.step(2)
    for _ in range(2):
        path = solver.snapshot()
        found.append(COMM.bcast(residual_of(path) if COMM.rank == 0 else None))
    solver.close()
    assert found[0].any() and np.array_equal(*found)


@pytest.mark.two_ranks
@pytest.mark.parametrize(("form", "instances"), [*((form, "1") for form in FORMS), ("root", "2"), ("slices", "2")])
def test_another_form_adds_what_was_lost_to_its_first_gradients(folder, form, instances):
    """Without momentum an update is the rate times the sum: of the gradients alone, or of them and what was lost."""
    fields = {"momentum": 0.0, "base_lr": 0.5}
    path, _ = snapshot(
        folder, f"lost {form} {instances}", replace(RUN, gradient_numbers="bf16", error_feedback="on"), **fields
    )
    lost = COMM.bcast(residual_of(path) if COMM.rank == 0 else None)
    run = replace(RUN, drive="auto" if instances == "2" else RUN.drive, **FORMS[form])
    with_lost = resumed(folder, path, run, 1, instances=instances, **fields)
    plain = replace(RUN, gradient_numbers="bf16", error_feedback="off")
    without, _ = snapshot(folder, f"nothing lost {form} {instances}", plain, **fields)
    if COMM.rank == 0:
        assert residual_none(without) and np.abs(lost).max() > 0
        strip(path)
    COMM.Barrier()
    alone = resumed(folder, path, run, 1, instances=instances, **fields)
    np.testing.assert_allclose(alone - with_lost, 0.5 * lost, atol=2e-7)


def residual_none(path):
    with open(path, "rb") as file:
        state = SolverState.FromString(file.read())
    return not state.residual


def strip(path):
    """Remove what was lost from a state, and the seal, so that it is taken as one of Caffe's."""
    with open(path, "rb") as file:
        state = SolverState.FromString(file.read())
    del state.residual[:]
    state.ClearField("sealed")
    state.ClearField("checksum")
    with open(path, "wb") as file:
        file.write(state.SerializeToString())


def test_the_root_keeps_the_sum_of_what_all_ranks_have_lost(folder, monkeypatch):
    solver = solver_of(folder, replace(RUN, gradient_numbers="int8"))
    aggregate, residuals = solver.parts.workflow.aggregate, solver.parts.residuals
    monkeypatch.setattr(aggregate, "give_lost", lambda flat: np.add(flat, COMM.rank + 1, out=flat))
    residuals.collect()
    residuals.collect()  # those that are still to be added stay
    total = 2 * sum(range(1, COMM.size + 1))
    assert (residuals.kept == total).all() if COMM.rank == 0 else residuals.kept is None
    monkeypatch.undo()
    solver.close()
