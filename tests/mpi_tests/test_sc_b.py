"""SC-B (S-Caffe, section 4.1): a rank waits for one broadcast, computes, and waits for one reduce."""

import pytest
from events import recorded, tower_solver

from scaffe.parallel.run import Run

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.fixture
def solver(tmp_path_factory):
    yield from tower_solver(tmp_path_factory, Run("SC-B", reduce="chain"))


def test_one_broadcast_comes_before_the_passes_and_one_reduce_after(solver, monkeypatch):
    events = recorded(monkeypatch, solver.net)
    solver.step(3)
    names = [layer.name for layer in solver.net.layers]
    backward = [event for event in events if event.startswith("backward")]
    iteration = ["bcast", *(f"forward {name}" for name in names), *backward[: len(backward) // 3], "reduce"]
    assert backward[0] == "backward loss" and "backward ip1" in iteration
    assert events == [*iteration * 3, "bcast"]  # the last one gives all ranks the parameters at the step's end
