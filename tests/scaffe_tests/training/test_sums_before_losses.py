"""Instances can have summed all gradients before the loss is known: no parameter changes until then, all do after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bad_input
import pytest

from scaffe.errors import DivergedError
from scaffe.parallel.instances.gathers.gather import registered
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.parallel.world import open_world
from scaffe.training.losses import Losses
from scaffe.training.solver import Solver

pytestmark = pytest.mark.mpi_skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    open_world()  # which starts the log
    return bad_input.trainable(tmp_path, monkeypatch)


def opened(monkeypatch: pytest.MonkeyPatch, gather: str = "slices", error: Exception | None = None) -> Solver:
    """Return a solver whose loss is known only when all sums are complete; it raises the error then, in iteration 1."""
    solver, take = Solver("solver.prototxt", instances=Instances(2, gather=gather, oversubscribe=True)), Losses.take

    def take_late(losses, *given, **named) -> None:
        assert solver.parts.workflow.instance_sums is not None
        sums = solver.parts.workflow.instance_sums.sums
        with sums._changed:
            sums._changed.wait_for(lambda: sums.gather.is_complete or sums._error)
        take(losses, *given, **named)
        if error is not None and solver.iter:
            raise error

    monkeypatch.setattr(Losses, "take", take_late)
    return solver


def test_a_loss_that_ends_training_leaves_the_parameters_as_they_were(folder, monkeypatch) -> None:
    solver = opened(monkeypatch, error=DivergedError("not finite"))
    solver.step(1)
    before = solver.net.packed.data.tobytes()
    with pytest.raises(DivergedError, match="^not finite$"):
        solver.step(1)
    assert solver.net.packed.data.tobytes() == before
    solver.close()


@pytest.mark.parametrize("gather", registered())
def test_what_was_summed_before_the_loss_is_updated_after_it(folder, monkeypatch, gather) -> None:
    expected = Solver("solver.prototxt", instances=Instances(2, gather=gather, oversubscribe=True))
    expected.step(3)
    solver = opened(monkeypatch, gather)
    solver.step(3)
    assert solver.net.packed.data.tobytes() == expected.net.packed.data.tobytes()
    expected.close()
    solver.close()


class Noted:
    """An aggregation that notes what it is asked for; a sum completes while it begins."""

    def __init__(self, workflow: Workflow):
        self.workflow = workflow
        self.asked: list[object] = []

    def begin(self) -> None:
        self.workflow._summed(2)
        self.asked.append("begun")

    def summed(self, k: int) -> None:
        self.asked.append(k)


def test_aggregation_begins_before_it_gets_any_sum(folder) -> None:
    solver = Solver("solver.prototxt", instances=Instances(2, oversubscribe=True))
    workflow = solver.parts.workflow
    noted: Any = Noted(workflow)
    aggregate, workflow.aggregate = workflow.aggregate, noted
    for _ in range(2):
        workflow.expect()
        workflow._summed(1)
        workflow.begin()
        workflow._summed(0)
    assert noted.asked == ["begun", 1, 2, 0] * 2
    workflow.aggregate = aggregate
    solver.close()
