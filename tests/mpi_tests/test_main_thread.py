"""The main thread alone calls MPI, whatever computes: no more may be allowed (MPI_THREAD_FUNNELED)."""

import threading

import main_thread
import nets
import pytest
from main_thread import GuardedComm, GuardedWin
from mpi4py import MPI

from scaffe.compute import Compute
from scaffe.parallel.drive import DRIVES
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.two_ranks]
IGNORING = "loss_param { ignore_label: 3 normalization: VALID }"
COUNTING = f"""
layer {{
  name: "early" type: "SoftmaxWithLoss" bottom: "ip3" bottom: "label" top: "early" loss_weight: 0.3 {IGNORING}
}}
layer {{
  name: "scores" type: "Accuracy" bottom: "ip3" bottom: "label" top: "scores" top: "each"
  accuracy_param {{ ignore_label: 3 }}
}}
layer {{
  name: "ip4" """  # amid the net, where parameters of later layers may be on their way
WAYS = [
    {"workflow": workflow, "drive": drive, "sync": sync}
    for workflow in ("SC-OB", "SC-OBR")
    for drive in DRIVES
    for sync in ("reduce-bcast", "allreduce")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "main_thread")


@pytest.fixture(autouse=True)
def guarded(monkeypatch):
    monkeypatch.setattr(MPI, "Win", GuardedWin)
    main_thread.strangers.clear()


def train(folder, iterations=6, **run):
    """Return the parameters, and what the layers that count over all ranks say, on this rank."""
    net = nets.tower(folder / "db").replace('layer {\n  name: "ip4" ', COUNTING.strip() + " ")
    net = net.replace('bottom: "label" top: "loss"', f'bottom: "label" top: "loss" {IGNORING}')
    assert net.count("ignore_label") == 3
    world = World(GuardedComm(COMM))
    given = Run(bucket_bytes="500", reduce="chain", **run)
    solver = Solver(nets.solver_with(net, base_lr=0.1), world=world, compute=Compute(engine="reference"), run=given)
    solver.step(iterations)
    told = [solver.net.blobs[name].data.copy().tobytes() for name in ("early", "scores", "each", "loss")]
    solver.close()
    return solver.net.packed.data.tobytes(), told


@pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(way.values()))
def test_sums_of_layers_are_made_by_the_main_thread_and_are_those_of_sc_b(folder, way):
    expected = train(folder, workflow="SC-B")
    assert train(folder, **way) == expected
    assert not main_thread.strangers


def test_workflows_that_take_turns_leave_mpi_to_the_main_thread(folder):
    expected = train(folder, 40, workflow="SC-B")
    assert train(folder, 40, workflow="auto") == expected
    assert not main_thread.strangers


def test_the_guard_sees_another_thread(folder):
    comm, found = GuardedComm(COMM).Dup(), []

    def call(work):
        with pytest.raises(AssertionError, match="MPI is for the main thread") as failure:
            work()
        found.append(failure)

    request = comm.Ibarrier()
    for work in (lambda: comm.Barrier(), lambda: request.Test(), lambda: comm.rank):
        thread = threading.Thread(target=call, args=(work,))
        thread.start()
        thread.join()
    request.Wait()
    comm.Free()
    assert len(found) == len(main_thread.strangers) == 3
