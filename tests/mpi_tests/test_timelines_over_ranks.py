"""A timeline shows what happened, in an order that can be, and changes nothing of what it shows."""

import json
from collections import defaultdict

import nets
import pytest
from mpi4py import MPI

from scaffe.compute import Compute
from scaffe.errors import ScaffeError
from scaffe.monitor.spans import instance_of
from scaffe.monitor.watching import Watching
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.meter import describe
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.timeline import trace as traces
from scaffe.timeline.overlap import summarise
from scaffe.timeline.trace import clock_offset, read_trace
from scaffe.training.signals import ACTIONS
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = [pytest.mark.mpi(min_size=2)]
ITERATIONS = 6
WAYS = {
    "SC-B": {"workflow": "SC-B"},
    "SC-OB": {"workflow": "SC-OB", "drive": "hook"},
    "SC-OBR, helper": {"workflow": "SC-OBR", "drive": "helper"},
    "SC-OBR, hook": {"workflow": "SC-OBR", "drive": "hook"},
    "allreduce": {"workflow": "SC-OBR", "sync": "allreduce"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "timelines")


def make(folder, way, **options):
    param = nets.solver_with(nets.tower(folder / "db"), base_lr=0.1, max_iter=ITERATIONS)
    run = Run(reduce="chain", bucket_bytes="3K", **WAYS[way])
    return Solver(param, world=World(COMM), compute=Compute(engine="reference"), run=run, **options)


def train(folder, way, **options):
    """Return the solver after some iterations, closed."""
    solver = make(folder, way, **options)
    solver.solve()
    solver.parts.propagate.sync()
    solver.close()
    return solver


@pytest.fixture(scope="module", params=WAYS)
def shown(request, folder):
    """Return a way, its solver and the trace of its run."""
    path = folder / f"{request.param}.json"
    return request.param, train(folder, request.param, watching=Watching(timeline=path)), path


def spans(path):
    """Return each rank's spans (kind, name, begin, end, track) in nanoseconds, in the order of their beginnings."""
    by_rank = defaultdict(list)
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            begin, length = round(1e3 * event["ts"]), round(1e3 * event["dur"])
            by_rank[event["pid"]].append((event["cat"], event["name"], begin, begin + length, event["tid"]))
    return by_rank


def named(one_rank, *kinds):
    return [span for span in one_rank if span[0] in kinds]


def test_a_timeline_changes_no_bit(folder, shown):
    way, solver, _ = shown
    plain = train(folder, way)
    assert plain.net.packed.data.tobytes() == solver.net.packed.data.tobytes()


def test_ranks_and_tracks_have_names(shown):
    content = json.loads(shown[2].read_text())
    names = [event for event in content["traceEvents"] if event["ph"] == "M"]
    hosts = COMM.allgather(MPI.Get_processor_name())
    ranks = {event["pid"]: event["args"]["name"] for event in names if event["name"] == "process_name"}
    assert ranks == {rank: f"rank {rank} on {host}" for rank, host in enumerate(hosts)}
    tracks = {(event["pid"], event["tid"]) for event in names if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in content["traceEvents"]} == tracks


def test_every_layer_stands_once_in_each_iteration(shown):
    _, solver, path = shown
    layers = [layer.name for layer in solver.net.layers]
    needed = [layer for layer, node in zip(layers, solver.net.nodes, strict=True) if node.backward]
    for one_rank in spans(path).values():
        windows = named(one_rank, "iteration")
        assert [window[1] for window in windows] == [f"iteration {k}" for k in range(ITERATIONS)]
        for _, _, begin, end, _ in windows:
            inside = [span for span in one_rank if begin <= span[2] and span[3] <= end]
            assert [span[1] for span in named(inside, "forward")] == layers[1:]
            assert [span[1] for span in named(inside, "backward")] == needed[::-1]
        assert len(named(one_rank, "forward")) == ITERATIONS * len(layers[1:])


INSTANCES = 2


@pytest.fixture(scope="module", params=["SC-OBR, helper", "SC-B"])
def with_instances(request, folder):
    """Return a way, its solver of several instances on each rank, and the trace of its run."""
    path = folder / f"{request.param} with instances.json"
    given = Instances(INSTANCES, gather="slices", oversubscribe=True)
    return request.param, train(folder, request.param, instances=given, watching=Watching(timeline=path)), path


def test_each_instance_has_a_track_with_every_layer_and_its_readers(with_instances):
    _, solver, path = with_instances
    layers = [layer.name for layer in solver.net.layers]
    needed = [layer for layer, node in zip(layers, solver.net.nodes, strict=True) if node.backward]
    for one in read_trace(path).ranks.values():
        tracks = list(one.tracks.values())
        assert [track for track in tracks if instance_of(track) is not None] == [
            f"instance {i}{part}" for i in range(INSTANCES) for part in ("", ", reader images")
        ]
        for i in range(INSTANCES):
            mine = [span for span in one.spans if span.track == f"instance {i}"]
            assert [span.name for span in mine if span.kind == "forward"] == ITERATIONS * layers[1:]
            assert [span.name for span in mine if span.kind == "backward"] == ITERATIONS * needed[::-1]
            read = [span for span in one.spans if span.track == f"instance {i}, reader images"]
            assert sum(span.kind == "read" for span in read) >= ITERATIONS


def test_each_buckets_gradients_are_added_in_the_instances_threads(with_instances):
    _, solver, path = with_instances
    buckets = {bucket.label(solver.net) for bucket in solver.parts.workflow.aggregate.buckets}
    for one in read_trace(path).ranks.values():
        additions = [span for span in one.spans if span.kind == "gather"]
        assert {span.name for span in additions} == buckets
        assert all(instance_of(span.track) is not None for span in additions)
        assert {span.track for span in one.spans if span.awaited == "instances"} <= set(one.tracks.values())


def test_the_summary_has_the_means_of_the_instances(with_instances):
    told = summarise(read_trace(with_instances[2]))
    assert len(told.names) == ITERATIONS
    work = told.phases["forward"].busy + told.phases["backward"].busy + told.phases["gather"].busy
    assert 0 < work < told.total
    assert all(told.phases[kind].exposed < told.total for kind in ("propagation", "aggregation"))


def test_spans_of_a_track_are_apart_or_one_holds_the_other(shown):
    for one_rank in spans(shown[2]).values():
        open_until = defaultdict(list)
        for _, _, begin, end, track in one_rank:
            stack = open_until[track]
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1]
            stack.append(end)


def test_nothing_arrives_before_it_was_sent(shown):
    by_rank = spans(shown[2])
    for rank in by_rank:
        for kind, sender, receiver in (("propagation", 0, rank), ("aggregation", rank, 0)):
            sent, received = (named(by_rank[place], kind) for place in (sender, receiver))
            assert {span[1] for span in sent} == {span[1] for span in received}
            for bucket in {span[1] for span in sent}:
                begins = [span[2] for span in sent if span[1] == bucket]
                ends = [span[3] for span in received if span[1] == bucket]
                assert all(begin <= end for begin, end in zip(begins, ends, strict=False))


def test_each_bucket_is_summed_in_each_iteration(shown):
    way, solver, path = shown
    buckets = {bucket.label(solver.net) for bucket in solver.parts.workflow.aggregate.buckets}
    assert len(buckets) > 1
    for rank, one_rank in spans(path).items():
        sums = [span[1] for span in named(one_rank, "aggregation")]
        updates = [span[1] for span in named(one_rank, "update")]
        expected = {"all"} if WAYS[way]["workflow"] != "SC-OBR" else buckets
        assert sorted(sums) == sorted(ITERATIONS * [*expected])
        updating = rank == 0 or way == "allreduce"
        assert sorted(updates) == sorted(ITERATIONS * [*buckets] * updating)


def test_the_summary_of_a_run_agrees_with_its_workflow(shown):
    way, _, path = shown
    told = summarise(read_trace(path))
    assert list(told.own) == list(range(COMM.size))
    assert len(told.names) == ITERATIONS
    if WAYS[way]["workflow"] != "SC-OBR":
        assert told.phases["aggregation"].hidden == pytest.approx(0, abs=1e-9)
    assert told.phases["forward"].busy + told.phases["backward"].busy < told.total


def test_sc_b_hides_nothing(folder):
    solver = train(folder, "SC-B")
    text = describe(
        solver.world, [solver.parts.workflow.propagate.meter, solver.parts.workflow.aggregate.meter], ITERATIONS
    )
    assert text.startswith("propagation: 0% hidden, ")
    assert "; aggregation: 0% hidden, " in text


def test_a_run_that_is_stopped_writes_its_timeline(folder):
    asked = iter([[False] * len(ACTIONS)] * 2 + [[action == "stop" for action in ACTIONS]] * 9)
    path = folder / "stopped.json"
    solver = make(folder, "SC-OBR, helper", watching=Watching(timeline=path))
    solver.asked = lambda: next(asked)
    solver.solve()
    solver.close()
    assert solver.stopped == "stop"
    assert len(summarise(read_trace(path)).names) == solver.iter == 3


def test_a_file_that_cannot_be_written_is_told_before_training(folder):
    with pytest.raises(ScaffeError, match="no such folder"):
        make(folder, "SC-B", watching=Watching(timeline=folder / "none" / "t.json"))


def test_clocks_of_one_machine_need_no_offset():
    assert clock_offset(World(COMM)) == 0


def test_the_offset_leads_to_the_roots_clock(monkeypatch):
    real = traces.perf_counter
    monkeypatch.setattr(traces, "perf_counter", lambda: real() + 1000 * COMM.rank)
    assert round(clock_offset(World(COMM)), -1) == -1000 * COMM.rank
