"""Instances that are auto: which numbers are tried, why only one, and what a snapshot says of them."""

from __future__ import annotations

import nets
import pytest

from scaffe.compute import Compute
from scaffe.errors import PlanError
from scaffe.parallel.instances.gathers.gather import registered
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.topology import Domain, Topology
from scaffe.parallel.instances.trial import InstancesTrial
from scaffe.parallel.run import Run
from scaffe.parallel.world import open_world
from scaffe.training import auto_instances
from scaffe.training.auto_instances import as_text, parsed
from scaffe.training.solver import Solver

DATA = """layer { name: "%s" type: "Data" top: "x" top: "y"
  data_param { source: "SOURCE" backend: LMDB batch_size: %d } }"""
LOSS = 'layer { name: "loss" type: "Reduction" bottom: "x" top: "loss" loss_weight: 1 }'
INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 8 dim: 3 } } }'
MEMORY = """layer { name: "in" type: "MemoryData" top: "x" top: "y"
  memory_data_param { batch_size: 8 channels: 1 height: 1 width: 3 } }"""
IP = """layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 3 axis: 0 weight_filler { type: "xavier" } } }"""
REASONS = {  # by the text of a net of which a rank has only one
    INPUT + LOSS: "layer 'in' (Input) can't be divided in training: the program sets its values",
    MEMORY + LOSS: "layer 'in' (MemoryData) can't be divided in training: the program sets its arrays",
    DATA % ("a", 8) + IP + LOSS: (
        "layer 'ip' (InnerProduct) can't be divided in training: it takes the whole batch as one input (axis 0)"
    ),
    DATA % ("a", 8) + (DATA % ("b", 4)).replace('"x" top: "y"', '"z" top: "t"') + LOSS: (
        "the data layers have batches of 4 and 8"
    ),
}
pytestmark = pytest.mark.mpi_skip


@pytest.fixture(scope="module", autouse=True)
def world():
    """The log, which caplog reads from then on, begins with the world."""
    return open_world()


@pytest.fixture
def make(images, monkeypatch):
    """Make solvers whose rank has 4 cores in 2 domains, as far as auto knows."""
    made = []
    monkeypatch.setattr(auto_instances, "own_topology", lambda world: Topology((Domain(0, (0, 1)), Domain(1, (2, 3)))))

    def make(text="", instances=Instances("auto", gather="slices"), run=Run(), compute=Compute(), batch=8):  # noqa: B008
        text = text.replace("SOURCE", str(images)) or nets.softmax_regression(images, batch)
        given = {"instances": instances, "run": run, "compute": compute}
        made.append(Solver(nets.solver_with(text), **given))
        return made[-1]

    yield make
    for solver in made:
        solver.close()


@pytest.mark.parametrize(("text", "reason"), REASONS.items(), ids=["input", "memory", "whole batch", "two batches"])
def test_a_net_that_cannot_be_divided_has_one_instance_and_the_log_says_why(make, text, reason, caplog):
    caplog.set_level("INFO", "scaffe")
    solver = make(text)
    counts = solver.job.auto_instances._counts(solver.net, solver.parts.team)
    assert counts == {"1": [1]}
    assert [text for text in caplog.messages if text.startswith("Instances")] == [f"Instances: 1, since {reason}"]


def test_with_weak_scaling_there_is_one(make, caplog):
    caplog.set_level("INFO", "scaffe")
    solver = make(run=Run(scaling="weak"))
    solver.step(2)
    assert solver.job.auto_instances.is_settled and solver.job.auto_instances.present.n == "1"
    assert "Instances: 1, since with weak scaling the number of instances would change the global batch" in caplog.text


@pytest.mark.parametrize(("batch", "tried"), [(8, {"1": [1], "numa": [2], "core": [4]}), (3, {"1": [1], "numa": [2]})])
def test_as_many_are_tried_as_the_batch_has_samples(make, batch, tried):
    solver = make(batch=batch)
    assert solver.job.auto_instances._counts(solver.net, solver.parts.team) == tried


def test_a_batch_of_one_has_one_instance_and_the_log_says_why(make, caplog):
    caplog.set_level("INFO", "scaffe")
    make(batch=1).step(2)
    assert "Instances: 1, since 1 rank(s) with at most 4 core(s) each have a batch of 1" in caplog.text


def test_where_bits_must_repeat_no_clock_chooses_the_order_of_adding(make):
    tried = [make(compute=Compute(deterministic=given)).job.auto_instances._gathers() for given in (False, True)]
    assert set(tried[0]) >= {"slices", "tree:2", "server"} and tried[1] == ["slices"]


def test_the_log_has_one_line_of_the_trial(make, caplog):
    caplog.set_level("INFO", "scaffe")
    solver = make(instances=Instances(2, oversubscribe=True))
    solver.step(len(registered()) * InstancesTrial.ITERATIONS + 1)
    [line] = [text for text in caplog.messages if text.startswith("Instances")]
    assert line.startswith(f"Instances: 2, gather {solver.job.auto_instances.present.gather}, the fastest")


def test_a_way_reads_as_it_was_written():
    taken = Instances("core", "tree:3", 2, "0.0025", True)
    way = as_text(taken)
    assert ":" not in way  # as a plan needs it
    assert parsed(way, Instances("auto", "auto", 2, "auto", True)) == taken


@pytest.mark.parametrize("way", ["", "2", "2, slices", "two, slices, 0", "2, pile, 0", "2, slices, -1", "2, a, b, c"])
def test_a_damaged_way_is_an_error(way):
    with pytest.raises(PlanError, match="a snapshot's instances must be a number, a gather and a delay, got "):
        parsed(way, Instances("auto"))
