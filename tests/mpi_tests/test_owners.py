"""Owners of buckets: which rank updates what changes no bit of the parameters, if it changes no order of additions."""

from dataclasses import replace

import nets
import numpy as np
import pytest
import short_trainings
from both_engines import needs_bf16
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
RUN = Run(workflow="SC-OBR", drive="hook", reduce="slices", bucket_bytes="20K")  # joins in the ranks' order
SHARED = ["spread", "slices"]
NET = """
name: "Pieces"
layer {
  name: "images" type: "Data" top: "data" top: "label"
  transform_param { scale: 0.00390625 } data_param { source: "%s" batch_size: 13 backend: LMDB }
}
layer {
  name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" param { lr_mult: 1 } param { lr_mult: 2 }
  inner_product_param { num_output: 60 weight_filler { type: "xavier" } }
}
layer { name: "tanh1" type: "TanH" bottom: "ip1" top: "ip1" }
layer {
  name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } }
}
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""  # ip1 is cut into pieces
RULES = ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "LARS"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "owners")


def solver_of(
    folder, run=RUN, engine="reference", numbers="float32", instances="1", comm=COMM, deterministic=False, **fields
):
    given = {"momentum": 0.0 if fields.get("type") in ("AdaGrad", "RMSProp") else 0.9, **fields}
    param = nets.solver_with(NET % (folder / "db"), **given)
    compute = Compute(engine, numbers=numbers, deterministic=deterministic)
    instances = Instances(instances, oversubscribe=instances != "1")
    return Solver(param, world=World(comm), compute=compute, run=run, instances=instances)


def train(folder, run=RUN, iterations=3, **fields):
    """Return the parameters after each iteration, the same on all ranks."""
    solver, found = solver_of(folder, run, **fields), []
    for _ in range(iterations):
        solver.step(1)
        found.append(values(solver))
    solver.close()
    assert len({one.tobytes() for one in COMM.allgather(found[-1])}) == 1
    return found


def near(ours, expected):
    return all(np.abs(mine - one).max() <= 1e-6 * np.abs(one).max() for mine, one in zip(ours, expected, strict=True))


def same_bits(ours, expected):
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(ours, expected, strict=True))


@pytest.mark.parametrize("owners", SHARED)
@pytest.mark.parametrize("drive", ["hook", "helper"])
@pytest.mark.parametrize("workflow", ["SC-B", "SC-OB", "SC-OBR"])
def test_parameters_have_the_same_bits_whichever_rank_updates_them(folder, workflow, drive, owners):
    assert same_bits(train(folder, replace(RUN, workflow=workflow, drive=drive, owners=owners)), train(folder))


@pytest.mark.parametrize("owners", SHARED)
@pytest.mark.parametrize("rule", RULES)
def test_each_rule_updates_the_same_bits_from_its_part_of_the_history(folder, rule, owners):
    fields = {"type": rule, "iter_size": 2, "weight_decay": 0.004}
    expected = train(folder, **fields)
    found = train(folder, replace(RUN, owners=owners), **fields)
    if rule == "LARS" and owners == "slices":  # norms are sums of the slices' squares
        assert near(found, expected)
    else:
        assert same_bits(found, expected)


@pytest.mark.parametrize("owners", SHARED)
@pytest.mark.parametrize(("rule", "most"), [("SGD", "20K"), ("SGD", "inf"), ("LARS", "20K")])
def test_clipping_sees_the_gradients_of_all_owners(folder, rule, most, owners):
    fields = {"type": rule, "clip_gradients": 0.05, "iter_size": 2}
    expected, free = train(folder, **fields), train(folder, **{**fields, "clip_gradients": -1})
    found = train(folder, replace(RUN, owners=owners, bucket_bytes=most), **fields)
    assert near(found, expected) and not near(free, expected)


@pytest.mark.parametrize("owners", SHARED)
def test_instances_and_the_fast_engine_have_several_owners_too(folder, owners):
    fields = {"engine": "onednn", "instances": "2", "deterministic": True}
    run = replace(RUN, drive="auto")
    assert same_bits(train(folder, replace(run, owners=owners), **fields), train(folder, run, **fields))


@needs_bf16
@pytest.mark.parametrize("owners", SHARED)
@pytest.mark.parametrize("workflow", ["SC-B", "SC-OB", "SC-OBR"])
def test_owners_broadcast_rounded_weights(folder, workflow, owners):
    """Between the iterations of one step: its end makes all ranks' parameters exact."""

    def run(broadcast_numbers):
        run = replace(RUN, workflow=workflow, owners=owners, broadcast_numbers=broadcast_numbers)
        solver = solver_of(folder, run, engine="onednn", numbers="bf16", base_lr=0.1)
        solver.step(4)
        found = values(solver)
        solver.close()
        return found

    found = run("bf16")
    assert np.array_equal(found, run("float32"))
    assert len({one.tobytes() for one in COMM.allgather(found)}) == 1


@pytest.mark.parametrize("owners", SHARED)
def test_a_rank_has_the_history_of_what_it_owns(folder, owners):
    solver = solver_of(folder, replace(RUN, owners=owners), type="Adam")
    solver.step(2)
    history = solver.parts.rule.history
    assert [one.size for one in history] == [solver.parts.rule.owned.count] * 2
    sizes = [bucket.part.stop - bucket.part.start for bucket in solver.parts.workflow.buckets]
    assert COMM.allreduce(history[0].size) == sum(sizes)
    assert history[0].size <= sum(sizes) / COMM.size + (max(sizes) if owners == "spread" else 16 * len(sizes))
    solver.close()


def state_of(path):
    state = SolverState()
    with open(path, "rb") as file:
        state.ParseFromString(file.read())
    return [np.array(one.data, np.float32) for one in state.history]


def snapshot(folder, name, run, **fields):
    return short_trainings.snapshot(solver_of(folder, run, snapshot_prefix=str(folder / name), **fields))


def resumed(folder, path, run, comm=COMM, **fields):
    solver = solver_of(folder, run, comm=comm, **fields)
    solver.restore(path)
    solver.step(2)
    found = values(solver)
    solver.close()
    return found


@pytest.mark.parametrize("owners", SHARED)
def test_a_state_is_that_of_one_owner_and_goes_on_under_any(folder, owners):
    shared = replace(RUN, owners=owners)
    path, expected = snapshot(folder, f"root {owners}", RUN, type="Adam")
    ours, found = snapshot(folder, owners, shared, type="Adam")
    assert np.array_equal(found, expected)
    if COMM.rank == 0:
        assert same_bits(state_of(ours), state_of(path)) and any(one.any() for one in state_of(path))
    for run in (RUN, replace(RUN, owners="spread"), replace(RUN, owners="slices"), replace(RUN, sync="allreduce")):
        assert np.array_equal(resumed(folder, ours, run, type="Adam"), expected)
    assert np.array_equal(resumed(folder, path, shared, type="Adam"), expected)
    comm = COMM.Split(COMM.rank == 0)
    if COMM.rank == 0:
        alone = resumed(folder, ours, RUN, comm, type="Adam")
        assert np.abs(alone - expected).max() <= 1e-5 * np.abs(expected).max()
    comm.Free()


@pytest.mark.parametrize("owners", SHARED)
def test_snapshots_meanwhile_gather_the_history(folder, owners):
    name = f"meanwhile {owners}"
    solver = solver_of(folder, replace(RUN, owners=owners), snapshot_prefix=str(folder / name), snapshot=2)
    solver.step(5)
    expected = values(solver)
    solver.close()
    for start in (2, 4):
        solver = solver_of(folder, replace(RUN, owners=owners))
        solver.restore(str(folder / f"{name}_iter_{start}.solverstate"))
        solver.step(5 - start)
        assert np.array_equal(values(solver), expected)
        solver.close()


def test_a_history_that_is_being_written_stays_when_it_is_gathered_again(folder):
    """As at a turn of the trial of owners, which may begin before the last snapshot is written."""
    solver = solver_of(folder, replace(RUN, owners="spread"))
    written = []
    for _ in range(2):
        solver.step(1)
        solver.parts.snapshots.collect()
        if COMM.rank == 0:
            (flat,) = solver.parts.snapshots.history.now.whole(np.copy)
            written.append((flat, flat.copy()))
    solver.close()
    assert all(np.array_equal(flat, before) for flat, before in written)


@pytest.mark.parametrize("owners", SHARED)
def test_users_functions_read_all_sums_and_change_them_alike(folder, owners):
    def run(owners):
        solver, seen = solver_of(folder, replace(RUN, owners=owners)), []

        def halve():
            seen.append(solver.net.params["ip2"][0].diff.copy())
            for blobs in solver.net.params.values():
                for blob in blobs:
                    blob.diff[...] *= 0.5

        solver.add_callback(lambda: None, halve)
        solver.step(2)
        found = values(solver)
        solver.close()
        return [found, *seen]

    ours = run(owners)
    assert same_bits(ours, run("root"))
    assert len({one.tobytes() for one in COMM.allgather(ours[-1])}) == 1


@pytest.mark.parametrize("owners", SHARED)
def test_an_update_by_the_gradients_in_the_nets(folder, owners):
    def update(owners):
        solver = solver_of(folder, replace(RUN, owners=owners))
        for layer in solver.net.params.values():
            for blob in layer:
                blob.diff[...] = COMM.rank + 1
        solver.apply_update()
        solver.net.params["ip2"][0].data[...] += 1 if COMM.rank == 0 else 2
        solver.step(1)
        found = values(solver)
        solver.close()
        return [found]

    assert same_bits(update(owners), update("root"))


@pytest.mark.parametrize("rule", ["SGD", "Adam"])
def test_auto_tries_all_owners_and_keeps_the_bits_and_the_history(folder, rule, caplog):
    """Its trial gives the history to other ranks at each turn."""
    run, iterations = replace(RUN, owners="auto"), 3 * 12 + 3
    expected = train(folder, iterations=iterations, type=rule)[-1]
    with caplog.at_level("INFO"):
        found = train(folder, run, iterations=iterations, type=rule)[-1]
    assert np.array_equal(found, expected)
    if COMM.rank == 0:
        said = " ".join(record.getMessage() for record in caplog.records)
        assert all(f"SC-OBR by hook, owners {one} " in said for one in ("root", *SHARED))
