"""Whatever the workflow, buckets and driver: the parameters are SC-B's, to the bit where sums have one order."""

import functools
import threading

import nets
import numpy as np
import pytest
from mpi4py import MPI

from collectives import ArgumentError, Communicator, DeviceFault, supernodes
from collectives.execution.plans import Plan
from collectives.staged import Staged
from scaffe.compute import Compute
from scaffe.errors import AgreedError
from scaffe.monitor.watching import Watching
from scaffe.parallel import buckets, ordering
from scaffe.parallel.drive import DRIVES
from scaffe.parallel.propagate import StagedPropagate
from scaffe.parallel.run import Run
from scaffe.parallel.workflows import sc_obr
from scaffe.parallel.world import World
from scaffe.training import communicator
from scaffe.training.solver import Solver

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
    "SC-OBR, buckets that suit a chain": {"workflow": "SC-OBR", "bucket_bytes": "auto", "reduce": "chain"},
    "SC-OBR, one message": {"workflow": "SC-OBR", "bucket_bytes": "inf"},
    "SC-OBR, pieces of layers": {"workflow": "SC-OBR", "bucket_bytes": "1000"},
}
# Buckets and drivers are a rank's own: where there are more ranks for the sake of trees, a way for each workflow's.
MORE = "SC-OB, helper", "SC-OBR, hook", "SC-OBR, tried"
OVER_TREES = [WAYS[name] for name in (WAYS if COMM.size < 3 else MORE)]


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


def make(folder, run, **fields):
    param = nets.solver_with(nets.tower(folder / "db"), base_lr=0.1, **fields)
    return Solver(
        param, world=World(COMM), compute=Compute(engine="reference"), run=Run(**{"bucket_bytes": "3K", **run})
    )


def train(folder, run, iterations=14, **fields):
    """Return the parameters after some iterations."""
    solver = make(folder, run, **fields)
    solver.step(iterations)
    solver.close()
    return parameters(solver)


def parameters(solver):
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
    for way in OVER_TREES:
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


def test_lars_has_whole_layers_whatever_a_bucket_holds(folder, sc_b):
    expected = sc_b(type="LARS")
    assert any((values != sc_b()[label]).any() for label, values in expected.items())
    ours = train(folder, {"workflow": "SC-OBR", "bucket_bytes": "1000", "reduce": "chain"}, type="LARS")
    assert_same_bits(ours, expected)


def test_without_room_in_shared_memory_parameters_stay_where_they_are(folder, monkeypatch):
    said = []
    monkeypatch.setattr(communicator.log, "info", lambda text, *more: said.append(text))
    results = []
    for has_room in (False, True):
        said.append(has_room)
        monkeypatch.setattr(Communicator, "has_room", lambda self, nbytes, answer=has_room: answer)
        results.append(train(folder, {"workflow": "SC-B", "reduce": "slices"}))
    told = [text for text in said[said.index(False) : said.index(True)] if "has no room" in str(text)]
    assert len(told) == 1 and said.count(told[0]) == 1
    assert_same_bits(*results)


@pytest.mark.parametrize("fields", [{}, {"iter_size": 2}], ids=str)
@pytest.mark.parametrize("drive", DRIVES)
def test_broadcasts_in_another_order_give_the_bits_of_sc_b(folder, sc_b, monkeypatch, drive, fields):
    orders = []
    take = StagedPropagate._make_stages

    def noted(self, share):
        take(self, share)
        orders.append(list(self.stages))

    monkeypatch.setattr(sc_obr, "FEW_NODES", 0)
    monkeypatch.setattr(ordering, "share_ahead", lambda *seconds: 0.5)
    monkeypatch.setattr(StagedPropagate, "_make_stages", noted)
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


@pytest.mark.two_ranks
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


LATE = 20  # looks at messages before one of them lets any go on
STEPPED = {
    "SC-B": {"workflow": "SC-B"},
    "SC-OB, helper": {"workflow": "SC-OB", "drive": "helper"},
    "SC-OB, hook": {"workflow": "SC-OB", "drive": "hook"},
    "SC-OBR, helper": {"workflow": "SC-OBR", "drive": "helper"},
    "SC-OBR, hook": {"workflow": "SC-OBR", "drive": "hook"},
    "auto": {"workflow": "auto"},
    "allreduce": {"workflow": "SC-OBR", "sync": "allreduce"},
}


@pytest.fixture
def late_network(monkeypatch):
    """Have messages go on in few of the looks at them; return how often a broadcast or reduce was freed under way."""
    progress, free, broken = Staged.progress, Staged.free, []

    def seldom(self):
        self.looks = getattr(self, "looks", 0) + 1
        return progress(self) if self.looks % LATE == 0 else False

    def freed(self):
        broken.extend([1] * (not self.done()))
        free(self)

    monkeypatch.setattr(Staged, "progress", seldom)
    monkeypatch.setattr(Staged, "free", freed)
    return broken


@pytest.mark.parametrize("way", STEPPED)
def test_after_each_step_all_ranks_have_the_roots_parameters(folder, late_network, way):
    one_by_one, at_once = make(folder, {**STEPPED[way], "reduce": "chain"}), make(folder, {"reduce": "chain"})
    for _ in range(5):
        one_by_one.step(1)
        at_once.step(1)
        assert_same_bits(parameters(one_by_one), parameters(at_once))
        assert_ranks_alike(parameters(one_by_one))
    one_by_one.close()
    at_once.close()
    assert not late_network


@pytest.mark.parametrize("way", [way for way in STEPPED if way != "auto"])
def test_nothing_is_freed_under_way(folder, late_network, way):
    solver = make(folder, {**STEPPED[way], "reduce": "chain"})
    solver._iterate(ends=False)  # in mid-step, as after an error that all ranks have had
    solver.close()
    assert not late_network
    assert_ranks_alike(parameters(solver))


@pytest.mark.parametrize("way", STEPPED)
def test_what_the_root_writes_into_parameters_between_steps_counts(folder, way):
    writing, alike = make(folder, {**STEPPED[way], "reduce": "chain"}), make(folder, {"reduce": "chain"})
    held = [solver.net.params["ip5"][0].data for solver in (writing, alike)]
    for factor in (0.5, 2.0, 1.5):
        writing.step(2)
        alike.step(2)
        if COMM.rank == 0:
            held[0][...] *= factor
        held[1][...] *= factor
    writing.step(2)
    alike.step(2)
    assert_same_bits(parameters(writing), parameters(alike))
    writing.close()
    alike.close()


@pytest.mark.parametrize("way", ["SC-B", "SC-OBR, hook", "allreduce"])
def test_what_the_root_alone_asks_for_and_writes_reaches_all(folder, way):
    solver = make(folder, {**STEPPED[way], "reduce": "chain"})
    solver.step(1)
    if COMM.rank == 0:
        solver.net.params["ip5"][0].data[...] *= 0.5
    solver.step(1)
    assert_ranks_alike(parameters(solver))
    solver.close()


def test_the_runs_supernodes_are_those_of_the_collectives(folder, monkeypatch):
    monkeypatch.setattr(supernodes, "gethostname", lambda: f"n{COMM.rank}")
    hosts = ";".join(f"n{rank}" for rank in range(COMM.size))
    with pytest.raises(ArgumentError, match="supernode"):  # the ranks of this node would be in several
        make(folder, {"supernodes": hosts})


CALLS = {
    "step": lambda solver: solver.step(1),
    "test_all": lambda solver: solver.test_all(),
    "snapshot": lambda solver: solver.snapshot(),
    "copy_weights": lambda solver: solver.copy_weights([]),
}


@pytest.mark.parametrize("drive", DRIVES)
@pytest.mark.parametrize("call", CALLS)
def test_a_rank_that_failed_alone_waits_for_nobody_when_it_closes_and_its_threads_end(folder, monkeypatch, call, drive):
    before = set(threading.enumerate())
    solver = make(folder, {"workflow": "SC-OBR", "reduce": "chain", "drive": drive}, snapshot_after_train=False)
    solver.step(1)
    monkeypatch.setattr(type(solver.parts.propagate), "sync", lambda propagate: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        CALLS[call](solver)
    if COMM.rank == 1:
        solver.close()
        assert {thread.name for thread in set(threading.enumerate()) - before} <= {"watch"}
    COMM.Barrier()
    monkeypatch.undo()
    solver.failed_alone = False
    solver.close()


@pytest.mark.parametrize("way", ["SC-B", "SC-OBR, helper"])
def test_a_solver_that_is_closed_says_so_and_can_be_closed_again(folder, way):
    solver = make(folder, {**STEPPED[way], "reduce": "chain"})
    with pytest.raises(TypeError):
        solver.step("2")
    solver.step(2)  # the ranks are together again
    solver.close()
    solver.close()
    with pytest.raises(AgreedError, match="the solver is closed"):
        solver.step(1)
    assert not solver.net.packed.pinned


@pytest.mark.parametrize(
    ("way", "step", "named"),
    [
        ({"workflow": "SC-B"}, "run", r"reduce of \d+ bytes"),
        ({"workflow": "SC-OB", "drive": "helper"}, "advance", "parameters of ip1"),
        ({"workflow": "SC-OBR", "drive": "hook"}, "advance", "gradients of ip5"),
    ],
    ids=lambda given: given["workflow"] if isinstance(given, dict) else "",
)
def test_a_device_that_fails_under_a_message_is_told_with_the_layers_in_it(folder, monkeypatch, way, step, named):
    def fail(self):
        raise DeviceFault("an illegal memory access")

    param = nets.solver_with(nets.tower(folder / "db"))
    given = Run(reduce="chain", bucket_bytes="0", **way)
    solver = Solver(
        param, world=World(COMM), compute=Compute(engine="reference"), run=given, watching=Watching(stall_seconds=0)
    )
    solver.step(1)
    monkeypatch.setattr(Plan, step, fail)
    with pytest.raises(DeviceFault, match=f"^{named}: an illegal memory access$") as failure:
        solver.step(1)
    assert not World(COMM).is_alike(failure.value)
    solver.close()  # which waits for nobody
