"""Of the workflows that take turns, the one stays that is fastest where it is slowest."""

import pytest

from scaffe.parallel.choose import WorkflowTrial
from scaffe.parallel.run import Run


class Ways:
    """A workflow of which only the calls are looked at."""

    def __init__(self):
        self.propagate, self.syncs, self.is_closed, self.is_broken_off = self, 0, False, False

    def sync(self):
        self.syncs += 1

    def close(self):
        self.is_closed = True


def run(ours, theirs):
    """Return the trial, the workflows and the message after iterations of these seconds here and on another rank."""
    workflows = {name: Ways() for name in ours}
    names = list(ours)
    trial = WorkflowTrial(workflows, lambda mine: [mine, [[theirs[n]] * len(mine[k]) for k, n in enumerate(names)]])
    said = ""
    while not said:
        name = next(n for n, ways in workflows.items() if ways is trial.workflow)
        said = trial.took(ours[name])
    return trial, workflows, said


def test_the_slowest_rank_decides_on_all():
    trial, workflows, said = run({"SC-B": 2.0, "SC-OBR": 1.0}, {"SC-B": 2.5, "SC-OBR": 3.0})
    assert trial.workflow is workflows["SC-B"] and workflows["SC-OBR"].is_closed and not workflows["SC-B"].is_closed
    assert said.startswith("Workflow SC-B") and "SC-OBR 3000 ms" in said
    assert trial.iterations == WorkflowTrial.ROUNDS * WorkflowTrial.ITERATIONS


def test_every_turn_ends_with_the_roots_parameters_everywhere():
    _, workflows, _ = run({"SC-B": 2.0, "SC-OBR": 1.0}, {"SC-B": 2.0, "SC-OBR": 1.0})
    assert [ways.syncs for ways in workflows.values()] == [WorkflowTrial.ROUNDS] * 2


@pytest.mark.parametrize(("is_broken_off", "syncs"), [(False, 1), (True, 0)])
def test_closing_waits_for_the_parameters_unless_an_iteration_was_broken_off(is_broken_off, syncs):
    """Updates of an iteration that ended in an error never come."""
    ways = Ways()
    ways.is_broken_off = is_broken_off
    WorkflowTrial({"SC-OBR": ways}, lambda mine: [mine]).close()
    assert (ways.syncs, ways.is_closed) == (syncs, True)


@pytest.mark.parametrize(
    ("run_", "iterations"), [(Run("SC-OBR"), 24), (Run("auto"), 36), (Run("SC-OBR", drive="hook"), 0)]
)
def test_as_many_iterations_are_tried_as_the_documentation_says(run_, iterations):
    trial = WorkflowTrial({name: Ways() for name in run_.candidates}, lambda mine: [mine])
    tried = 0
    while len(trial.workflows) > 1:
        trial.took(1.0)
        tried += 1
    assert tried == iterations
