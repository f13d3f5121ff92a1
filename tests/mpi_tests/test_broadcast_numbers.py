"""Weights that are broadcast in bfloat16 train the bits of float32 ones, where layers multiply them in bfloat16."""

from threading import Event, Thread

import nets
import numpy as np
import pytest
from both_engines import needs_bf16
from mpi4py import MPI

from collectives import DisagreementError
from scaffe.compute import Compute
from scaffe.errors import ScaffeError
from scaffe.parallel import buckets
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.rounded import rounded_parameters
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = [pytest.mark.mpi(min_size=2), needs_bf16]
WAYS = {
    "SC-B": {"workflow": "SC-B", "reduce": "chain"},
    "SC-B, in a node's memory": {"workflow": "SC-B", "reduce": "slices"},
    "SC-B, tree of chains": {"workflow": "SC-B", "reduce": "cb-2"},
    "SC-OB, hook": {"workflow": "SC-OB", "drive": "hook", "reduce": "chain"},
    "SC-OB, helper": {"workflow": "SC-OB", "drive": "helper", "reduce": "slices"},
    "SC-OBR, hook": {"workflow": "SC-OBR", "drive": "hook", "reduce": "binomial"},
    "SC-OBR, helper": {"workflow": "SC-OBR", "drive": "helper", "reduce": "chain"},
    "SC-OBR, pieces of layers": {"workflow": "SC-OBR", "drive": "hook", "reduce": "chain", "bucket_bytes": "5000"},
    "tried": {"workflow": "auto", "reduce": "chain"},
}
INSIDE = ["conv1[0]", "conv2[0]", "ip1[0]", "ip2[0]"]  # what layers multiply in bfloat16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "numbers")


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    """Let layers of few bytes be cut."""
    monkeypatch.setattr(buckets, "SMALLEST", 64)


def make(folder, numbers, run, n="1", compute="bf16", **fields):
    given = Run(**{"bucket_bytes": "64K", "broadcast_numbers": numbers, **run})
    param = nets.solver_with(nets.lenet(folder / "db", 13, dropout=True), **fields)
    return Solver(
        param,
        world=World(COMM),
        compute=Compute("onednn", numbers=compute, threads=1),
        run=given,
        instances=Instances(n, gather="slices", oversubscribe=True),
    )


def train(folder, numbers, run, steps=(3, 1, 2), **given):
    """Return the parameters after each step, the history on the root, and the bytes of all broadcasts."""
    solver, found = make(folder, numbers, run, **given), []
    for count in steps:
        solver.step(count)
        found.append(np.concatenate([p.blob.data.reshape(-1) for p in solver.net.parameters]))
    sent = sum(workflow.propagate.nbytes for workflow in solver.parts.trial.workflows)
    history = [flat.tobytes() for flat in solver.parts.rule.history] if COMM.rank == 0 else []
    solver.close()
    return found, history, sent


def assert_same_bits(ours, expected):
    assert [one.tobytes() for one in ours[0]] == [one.tobytes() for one in expected[0]]
    assert ours[1] == expected[1]


@pytest.mark.parametrize("way", WAYS)
def test_training_gives_the_bits_of_float32_broadcasts(folder, way):
    ours, expected = (train(folder, numbers, WAYS[way]) for numbers in ("bf16", "float32"))
    assert_same_bits(ours, expected)
    for values in ours[0]:  # after a step all ranks have the root's own
        assert len(set(COMM.allgather(values.tobytes()))) == 1


@pytest.mark.two_ranks
@pytest.mark.parametrize("fields", [{"iter_size": 2}, {"clip_gradients": 0.1}, {"type": "Adam"}], ids=str)
@pytest.mark.parametrize("way", ["SC-OB, hook", "SC-OBR, hook"])
def test_other_updates_too(folder, way, fields):
    ours, expected = (train(folder, numbers, WAYS[way], **fields) for numbers in ("bf16", "float32"))
    assert_same_bits(ours, expected)


@pytest.mark.two_ranks
@pytest.mark.parametrize("workflow", ["SC-B", "SC-OB", "SC-OBR"])
def test_instances_too(folder, workflow):
    run = {"workflow": workflow, "reduce": "chain"}
    ours, expected = (train(folder, numbers, run, n="2", steps=(3,)) for numbers in ("bf16", "float32"))
    assert_same_bits(ours, expected)


@pytest.mark.parametrize("workflow", ["SC-B", "SC-OB", "SC-OBR"])
def test_within_a_step_receivers_have_rounded_weights_and_tests_the_roots_own(folder, monkeypatch, workflow):
    solver = make(folder, "bf16", {"workflow": workflow, "reduce": "chain", "drive": "hook"})
    seen, last = [], solver.net.layer_dict["ip2"]  # by whose forward pass all parameters are here
    compute = last.forward

    def noted(*blobs):
        seen.append({p.label: p.blob.values.array.copy() for p in solver.net.parameters})
        compute(*blobs)

    monkeypatch.setattr(last, "forward", noted)
    solver.step(3)
    for label in seen[-1]:
        roots = COMM.bcast(seen[-1][label])
        bits = seen[-1][label].view(np.uint32)
        if COMM.rank and label in INSIDE:
            assert not (bits & 0xFFFF).any()
            np.testing.assert_allclose(seen[-1][label], roots, rtol=2.0**-8, atol=1e-30)
        else:
            assert seen[-1][label].tobytes() == roots.tobytes()
    own = solver.net.packed.data.tobytes()
    assert len(set(COMM.allgather(own))) == 1 and (np.frombuffer(own, np.uint32) & 0xFFFF).any()
    solver.step(1)  # its first pass has what the last step has left
    for values in seen[-1].values():
        assert len(set(COMM.allgather(values.tobytes()))) == 1
    solver.close()


@pytest.mark.parametrize(("workflow", "halves", "wholes"), [("SC-B", 11, 1), ("SC-OB", 10, 2), ("SC-OBR", 11, 2)])
def test_weights_take_half_the_bytes_but_at_the_ends_of_a_step(folder, workflow, halves, wholes):
    run = {"workflow": workflow, "reduce": "chain", "drive": "hook"}
    few, many = (train(folder, numbers, run, steps=(11,))[2] for numbers in ("bf16", "float32"))
    solver = make(folder, "bf16", run)
    net, rounded = solver.net, rounded_parameters(solver.net)
    solver.close()
    assert {net.parameters[i].label for i in rounded} == set(INSIDE)
    whole, gaps = net.packed.nbytes, 64 * len(net.parameters) * (halves + wholes)
    half = whole - 2 * sum(net.parameters[i].blob.count for i in rounded)
    assert abs(few - (halves * half + wholes * whole)) < gaps
    assert abs(many - 12 * whole) < gaps


@pytest.mark.parametrize(("workflow", "halves"), [("SC-B", 2), ("SC-OB", 2), ("SC-OBR", 3)])
def test_after_the_end_of_a_step_nothing_is_broadcast_until_an_update(folder, workflow, halves):
    solver, sent = make(folder, "bf16", {"workflow": workflow, "reduce": "chain", "drive": "hook"}), []
    net, rounded = solver.net, rounded_parameters(solver.net)
    for _ in range(3):
        solver.step(3)
        solver.parts.workflow.propagate.sync()  # as a snapshot begins
        sent.append(sum(workflow.propagate.nbytes for workflow in solver.parts.trial.workflows))
    solver.close()
    whole, gaps = net.packed.nbytes, 64 * len(net.parameters) * (halves + 1)
    half = whole - 2 * sum(net.parameters[i].blob.count for i in rounded)
    for step in np.diff(sent):
        assert abs(step - (halves * half + whole)) < gaps


def test_threads_that_wait_for_the_same_parameters_read_them_expanded(folder, monkeypatch):
    solver = make(folder, "bf16", {"workflow": "SC-OB", "reduce": "chain", "drive": "hook"})
    solver.step(2)
    if not solver.world.is_root:  # which receives nothing
        wait_in_two_threads(solver.parts.workflow.propagate, monkeypatch)
    solver.close()


def wait_in_two_threads(propagate, monkeypatch):
    entered, go_on, calls = Event(), Event(), []

    def unpack(part):
        calls.append(part)
        entered.set()
        assert go_on.wait(900)

    monkeypatch.setattr(propagate.rounded, "unpack", unpack)
    propagate._received[0] = False
    first, second = (Thread(target=propagate._receive, args=(0,), daemon=True) for _ in range(2))
    first.start()
    assert entered.wait(900)
    second.start()
    second.join(0.2)  # long enough to return by mistake
    assert second.is_alive()
    go_on.set()
    first.join(900)
    second.join(900)
    assert len(calls) == 1 and not first.is_alive() and not second.is_alive()
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("run", "compute", "text"),
    [
        ({"sync": "allreduce"}, "bf16", "--broadcast-numbers bf16 with --sync allreduce"),
        ({}, "float32", "--broadcast-numbers bf16 with --compute float32"),
    ],
)
def test_where_it_makes_no_sense_it_is_refused(folder, run, compute, text):
    with pytest.raises(ScaffeError, match=text):
        make(folder, "bf16", run, compute=compute)


def test_ranks_that_differ_are_told(folder):
    with pytest.raises(DisagreementError, match="the run's settings"):
        make(folder, "bf16" if COMM.rank else "float32", {})
