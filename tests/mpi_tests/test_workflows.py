"""Whatever the workflow, buckets and driver: the parameters are SC-B's, to the bit where sums have one order."""

import functools

import nets
import numpy as np
import pytest
from mpi4py import MPI

from scaffe.parallel import buckets, ordering, workflow
from scaffe.parallel.drive import DRIVES
from scaffe.parallel.propagate import StagedPropagate
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = [pytest.mark.mpi(min_size=2)]
ONE_ORDER = ["mpi", "chain", "binomial", "cb-2", "cc-2", "slices"]
WAYS = {
    "SC-OB, helper": {"workflow": "SC-OB", "drive": "helper"},
    "SC-OB, hook": {"workflow": "SC-OB", "drive": "hook"},
    "SC-OB, a message a layer": {"workflow": "SC-OB", "bucket_bytes": "0"},
    "SC-OB, one message": {"workflow": "SC-OB", "bucket_bytes": "inf"},
    "SC-OBR, helper": {"workflow": "SC-OBR", "drive": "helper"},
    "SC-OBR, hook": {"workflow": "SC-OBR", "drive": "hook"},
    "SC-OBR, tried": {"workflow": "SC-OBR", "drive": "auto"},
    "SC-OBR, a message a layer": {"workflow": "SC-OBR", "bucket_bytes": "0"},
    "SC-OBR, buckets that suit": {"workflow": "SC-OBR", "bucket_bytes": "auto"},
    "SC-OBR, one message": {"workflow": "SC-OBR", "bucket_bytes": "inf"},
    "SC-OBR, pieces of layers": {"workflow": "SC-OBR", "bucket_bytes": "1000"},
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Let layers of few bytes be cut."""
    monkeypatch.setattr(buckets, "SMALLEST", 64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "workflows")


@pytest.fixture(scope="module")
def sc_b(folder):
    """Return SC-B's parameters with an algorithm and a solver's fields, as `train` does; each is trained once."""
    return functools.cache(
        lambda reduce="chain", **fields: train(folder, {"workflow": "SC-B", "reduce": reduce}, **fields)
    )


def train(folder, run, iterations=14, **fields):
    """Return the parameters after some iterations."""
    param = nets.solver_with(nets.tower(folder / "db"), base_lr=0.1, **fields)
    solver = Solver(param, world=World(COMM), engine="reference", run=Run(**{"bucket_bytes": "3K", **run}))
    solver.step(iterations)
    solver.propagate.sync()
    solver.close()
    return {p.label: p.blob.data.copy() for p in solver.net.parameters}


def assert_same_bits(ours, expected):
    for label, values in ours.items():
        assert values.tobytes() == expected[label].tobytes(), label


def assert_close(ours, expected):
    for label, values in ours.items():
        assert np.abs(values - expected[label]).max() <= 1e-5 * np.abs(expected[label]).max(), label


def assert_ranks_alike(ours):
    for label, values in ours.items():
        assert len(set(COMM.allgather(values.tobytes()))) == 1, label


@pytest.mark.parametrize("reduce", ONE_ORDER)
def test_every_workflow_gives_the_bits_of_sc_b(folder, sc_b, reduce):
    expected = sc_b(reduce)
    for way in WAYS.values():
        if reduce != "mpi":
            assert_same_bits(train(folder, {**way, "reduce": reduce}), expected)
        else:
            assert_close(train(folder, {**way, "reduce": reduce}), expected)


@pytest.mark.parametrize("workflow", ["SC-B", "SC-OBR"])
def test_s_caffes_own_reduce_gives_the_bits_of_sc_b_over_the_same_tree(folder, sc_b, workflow):
    run = {"workflow": workflow, "reduce": "cb:levels", "chain_size": 2}
    assert_same_bits(train(folder, run), sc_b("cb-2"))


@pytest.mark.parametrize("fields", [{}, {"clip_gradients": 0.05}, {"iter_size": 2}], ids=str)
def test_workflows_that_take_turns_give_the_bits_of_sc_b(folder, sc_b, fields):
    expected = sc_b(iterations=40, **fields)
    assert_same_bits(train(folder, {"workflow": "auto", "reduce": "chain"}, iterations=40, **fields), expected)


@pytest.mark.parametrize("fields", [{}, {"iter_size": 2}], ids=str)
@pytest.mark.parametrize("drive", DRIVES)
def test_broadcasts_in_another_order_give_the_bits_of_sc_b(folder, sc_b, monkeypatch, drive, fields):
    orders = []
    take = StagedPropagate._take

    def noted(self, share):
        take(self, share)
        orders.append(list(self.stages))

    monkeypatch.setattr(workflow, "FEW_NODES", 0)
    monkeypatch.setattr(ordering, "share_ahead", lambda *seconds: 0.5)
    monkeypatch.setattr(StagedPropagate, "_take", noted)
    expected = sc_b(**fields)
    given = {"workflow": "SC-OBR", "drive": drive, "bucket_bytes": "0", "reduce": "chain"}
    assert_same_bits(train(folder, given, **fields), expected)
    first, second = orders
    assert second != first == sorted(second)
    assert second[-1] == 0 and second[0] != first[-1]  # the last bucket goes first, the first one not last


@pytest.mark.parametrize("reduce", [*ONE_ORDER, "ring", "halving", "two-tree", "auto"])
@pytest.mark.parametrize("workflow", ["SC-B", "SC-OB", "SC-OBR"])
def test_allreduce_keeps_all_ranks_alike(folder, sc_b, workflow, reduce):
    ours = train(folder, {"workflow": workflow, "sync": "allreduce", "reduce": reduce})
    assert_ranks_alike(ours)
    assert_close(ours, sc_b())
    if reduce in ONE_ORDER[1:]:
        assert_same_bits(ours, sc_b(reduce))


@pytest.mark.parametrize(
    "fields",
    [
        {"clip_gradients": 0.05},
        {"iter_size": 2},
        {"iter_size": 2, "clip_gradients": 0.05},
        {"type": "AdaGrad", "momentum": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("way", WAYS)
def test_clipping_and_passes(folder, sc_b, way, fields):
    assert_same_bits(train(folder, {**WAYS[way], "reduce": "chain"}, **fields), sc_b(**fields))
