"""The numbers of a run are the same on any number of ranks, in every way to train; the root alone writes them."""

from __future__ import annotations

import nets
import numpy as np
import pytest
from event_files import curves
from mpi4py import MPI
from prometheus_client.parser import text_string_to_metric_families

from scaffe.compute import Compute
from scaffe.errors import ScaffeError
from scaffe.monitor.watching import Watching
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training import measured
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.two_ranks]
ITERATIONS, EVERY = 7, 3
OF_RANKS = "speed/", "reading/", "ranks/", "communication/"
WAYS = {
    "SC-B": {"workflow": "SC-B"},
    "SC-OB": {"workflow": "SC-OB", "drive": "hook"},
    "SC-OBR, helper": {"workflow": "SC-OBR", "drive": "helper"},
    "spread": {"workflow": "SC-OBR", "owners": "spread", "bucket_bytes": "16K"},
    "slices": {"workflow": "SC-B", "owners": "slices", "reduce": "ring"},
    "allreduce": {"workflow": "SC-OBR", "sync": "allreduce"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "numbers")


def train(folder, comm, name, run=Run(), **options):  # noqa: B008  frozen
    """Train on the ranks of `comm`; return the folder of the curves and the file of metrics."""
    runs, file = folder / name, folder / f"{name}.prom"
    fields = {"base_lr": 0.1, "iter_size": 2, "test_interval": 4, "test_iter": [3]}
    param = nets.solver_with(nets.lenet(folder / "db", batch=12, smooth=True), max_iter=ITERATIONS, **fields)
    watching = Watching(tensorboard=runs, metrics=file, measure_every=EVERY)
    solver = Solver(
        param, world=World(comm), compute=Compute(engine="reference"), run=run, watching=watching, **options
    )
    solver.solve()
    solver.close()
    comm.Barrier()
    return runs, file


@pytest.fixture(scope="module")
def alone(folder):
    """Return the curves of a run on one rank."""
    name = f"alone{COMM.rank}"
    return curves(train(folder, MPI.COMM_SELF, name)[0])


def samples(path):
    """Return (labels other than the run, value) of each sample of a file of metrics, by name."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_curves_are_those_of_one_rank(folder, alone, way):
    runs, file = train(folder, COMM, way, Run(**{"reduce": "chain", "bucket_bytes": "3K"} | WAYS[way]))
    assert len(list(runs.iterdir())) == 1
    shown = curves(runs)
    equal = {tag for tag in shown if not tag.startswith(OF_RANKS)}
    assert equal == {tag for tag in alone if not tag.startswith(OF_RANKS)}
    assert {"loss/smoothed", "train/loss", "test_0/accuracy", "gradient_norm/ip1", "update_norm/conv1"} <= equal
    for tag in equal:
        np.testing.assert_allclose(shown[tag], alone[tag], rtol=2e-4, err_msg=tag)
    assert [step for step, _ in shown["ranks/slowest"]] == [3, 6]
    for kind in ("propagation", "aggregation"):
        if (way, kind) != ("allreduce", "propagation"):  # where every rank has the parameters
            hidden, exposed = (shown[f"communication/{kind}_{share}"] for share in ("hidden", "exposed"))
            assert [0 <= share <= 1 for _, share in hidden] == [True, True]
            np.testing.assert_allclose([h + e for (_, h), (_, e) in zip(hidden, exposed, strict=True)], 1)


def test_each_rank_has_its_work_and_its_waits(folder, monkeypatch):
    since, taken = measured.Counters.since, []
    monkeypatch.setattr(measured.Counters, "since", lambda *given: taken.append(since(*given)) or taken[-1])
    _, file = train(folder, COMM, "ranks")
    found, intervals = samples(file), COMM.allgather(taken[-1])  # the last one's, of EVERY iterations
    for name in ("scaffe_rank_work_seconds", "scaffe_rank_reading_wait_ratio"):
        assert [labels["rank"] for labels, _ in found[name]] == [str(rank) for rank in range(COMM.size)]
    work = [value for _, value in found["scaffe_rank_work_seconds"]]
    ((_, slowest),), ((_, mean),) = found["scaffe_slowest_rank"], found["scaffe_work_seconds"]
    assert work[int(slowest)] == max(work) and np.isclose(mean, np.mean(work))
    ((_, seconds),) = found["scaffe_iteration_seconds"]
    assert all(one > 0 for one in work)
    np.testing.assert_allclose(work, [interval.work / EVERY for interval in intervals])
    np.testing.assert_allclose(seconds, intervals[0].seconds / EVERY)
    ((labels, _),) = found["scaffe_info"]
    assert labels["ranks"] == str(COMM.size)


def test_instances_on_several_ranks_have_the_numbers_of_one(folder, alone):
    instances = Instances(n="2", oversubscribe=True)
    shown = curves(train(folder, COMM, "instances", Run(workflow="SC-OBR"), instances=instances)[0])
    for tag in ("loss/smoothed", "gradient_norm/ip1", "update_norm/conv1", "test_0/accuracy"):
        np.testing.assert_allclose(shown[tag], alone[tag], rtol=2e-4, err_msg=tag)


def test_where_the_root_can_not_write_all_ranks_end_alike(folder):
    watching = Watching(tensorboard=folder / "db" / "data.mdb")
    with pytest.raises(ScaffeError, match="tensorboard '.*data.mdb': file exists"):
        Solver(nets.solver_with(nets.tower(folder / "db")), world=World(COMM), watching=watching)


def test_ranks_that_measure_at_other_iterations_disagree(folder):
    watching = Watching(metrics=folder / "run.prom", measure_every=2 + COMM.rank)
    with pytest.raises(Exception, match="the numbers"):
        Solver(nets.solver_with(nets.tower(folder / "db")), world=World(COMM), watching=watching)
