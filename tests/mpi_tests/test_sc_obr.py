"""SC-OBR (S-Caffe, section 4.3): gradients meet during the backward pass, and each bucket is updated at once."""

from dataclasses import replace
from math import inf

import pytest
from events import recorded, tower_solver

from scaffe.parallel import maker
from scaffe.parallel.drive import Hook
from scaffe.parallel.maker import FEW, make_workflow, may_update_early
from scaffe.parallel.run import Run

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.fixture
def solver(tmp_path_factory):
    yield from tower_solver(tmp_path_factory, Run("SC-OBR", bucket_bytes="0", drive="hook", reduce="chain"))


def test_gradients_may_begin_once_the_backward_pass_has_been_through_their_layer(solver, monkeypatch):
    events = recorded(monkeypatch, solver.net)
    solver.step(1)
    for layer in ("ip5", "ip3", "ip1"):
        assert events[events.index(f"backward {layer}") + 1] == f"begin gradients of {layer}"
    assert "reduce" not in events


def test_a_bucket_is_updated_and_sent_out_while_the_backward_pass_goes_on(solver, monkeypatch):
    aggregate = solver.parts.workflow.aggregate

    def until_nothing_moves(hook):
        while aggregate.progress() or not aggregate.idle():
            pass

    monkeypatch.setattr(Hook, "between", until_nothing_moves)
    events = recorded(monkeypatch, solver.net)
    held = {}

    def backward(*given, work=solver.net.layers[2].backward):
        held["before ip1"] = solver.net.params["ip5"][0].data.copy()
        work(*given)

    assert solver.net.layers[2].name == "ip1"
    monkeypatch.setattr(solver.net.layers[2], "backward", backward)
    before = solver.net.params["ip5"][0].data.copy()
    solver.step(1)
    assert events.index("begin parameters of ip5") < events.index("backward ip3")
    assert events.index("begin parameters of ip1") > events.index("backward ip1")
    if solver.world.is_root:
        assert (held["before ip1"] != before).any()
        assert (held["before ip1"] == solver.net.params["ip5"][0].data).all()


@pytest.mark.parametrize(("few", "early"), [(FEW, True), (0, False)])
def test_on_one_node_shrink_updates_few_parameters_early_by_the_helper(solver, monkeypatch, few, early):
    monkeypatch.setattr(maker, "FEW", few)
    run, parts = replace(solver.job.run, on_rank_loss="shrink", drive="helper"), solver.parts
    made = make_workflow(run, solver.world, parts.collectives, solver.net, parts.update, parts.rule)
    assert made.early == (early or parts.collectives.shape.nodes > 1)
    made.close()


def test_on_one_node_shrink_updates_the_same_buckets_after_the_last_sum(solver):
    run = replace(solver.job.run, on_rank_loss="shrink")
    late = make_workflow(
        run, solver.world, solver.parts.collectives, solver.net, solver.parts.update, solver.parts.rule
    )
    assert solver.parts.workflow.early and late.early == (solver.parts.collectives.shape.nodes > 1)
    assert late.buckets == solver.parts.workflow.buckets
    late.close()


@pytest.mark.parametrize(
    ("loss", "drive", "nodes", "nbytes", "early"),
    [
        ("stop", "hook", 1, inf, True),
        ("shrink", "hook", 1, 0, False),
        ("shrink", "helper", 1, FEW, True),
        ("shrink", "helper", 1, FEW + 4, False),
        ("shrink", "helper", 2, inf, True),
    ],
)
def test_with_shrink_updates_are_early_where_copies_cost_less(loss, drive, nodes, nbytes, early):
    assert may_update_early(Run("SC-OBR", drive=drive, on_rank_loss=loss), nodes, nbytes) is early
