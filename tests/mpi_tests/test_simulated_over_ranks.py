"""A simulation sends what real ranks send: the same buckets, in the same order, by the same messages."""

from __future__ import annotations

from typing import Any

import pytest
from mpi4py import MPI

from scaffe import models
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.simulation import simulate_iteration
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = [pytest.mark.mpi(min_size=2)]
NET, BATCH = "lenet", 4


def solver(run: Run) -> Solver:
    param = SolverParameter(snapshot_after_train=False, base_lr=0.001, lr_policy="fixed", max_iter=1, random_seed=1)
    param.net_param.MergeFrom(models.get(NET).train_val(batch=BATCH, data="dummy"))
    return Solver(param, world=World(COMM), run=run)


def began(notes: list[tuple[str, int, float]], kind: str, count: int) -> list[int]:
    """Return the buckets of the last `count` messages of a kind, in the order in which they began."""
    return [bucket for _, bucket, _ in sorted((n for n in notes if n[0] == kind), key=lambda n: n[2])][-count:]


@pytest.mark.parametrize("workflow", ["SC-OB", "SC-OBR"])
def test_buckets_messages_and_their_order_are_a_real_run_s(workflow: str) -> None:
    run = Run(workflow, reduce="chain", chunk_bytes=4096, bucket_bytes="64K", drive="helper", scaling="weak")
    real = solver(run)
    notes: list[tuple[str, int, float]] = []

    def note(kind: str, bucket: int, begin: float, end: float, lane: int | None) -> None:
        if lane is not None:
            notes.append((kind, bucket, begin))

    real.parts.workflow.propagate.meter.note = real.parts.workflow.aggregate.meter.note = note
    real.step(6)
    one = simulate_iteration(NET, COMM.size, "cluster-a", run, batch=BATCH, shown=COMM.size)
    assert dict(one.buckets) == real.parts.workflow.nbytes()
    labels = list(one.buckets)
    for kind, of in (("propagation", real.parts.workflow.propagate), ("aggregation", real.parts.workflow.aggregate)):
        simulated = sorted((s for s in one.spans[COMM.rank] if s.kind == kind), key=lambda span: span.begin)
        buckets = began(notes, kind, len(labels) if hasattr(of, "staged") else 1)
        expected = [labels[k] if k >= 0 else "all" for k in buckets]
        begins = {span.name: span.begin for span in simulated[-len(expected) :]}
        assert sorted(begins) == sorted(expected)
        assert expected == sorted(expected, key=begins.__getitem__)  # in two lanes two may begin together
    _steps_are_equal(real, run)
    real.close()


def _steps_are_equal(real: Any, run: Run) -> None:
    """The schedules of the simulation's communicator have this rank's steps."""
    from collectives.schedules.algorithms import Choice
    from collectives.simulation.communicator import Chooser

    group = real.parts.collectives.group
    chooser = Chooser(group, lambda what, nbytes: Choice("chain"), 1 << 20)
    array = real.net.packed.diff[: 1 << 14]
    plan = real.parts.collectives.plan("reduce", array, **run.how)
    schedule = chooser.schedule("reduce", run.reduce, array.nbytes, array.itemsize, run.chunk_bytes, 0)
    assert schedule.rank(COMM.rank) == plan.schedule.rank(COMM.rank)
