"""P ranks with n instances each compute what one rank with the whole batch computes."""

import random
import time

import nets
import numpy as np
import pytest
from both_engines import needs_onednn
from google.protobuf import text_format
from mpi4py import MPI

from scaffe.compute import Compute
from scaffe.parallel.instances import team
from scaffe.parallel.instances.gathers.gather import registered
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.topology import Domain, Topology, read_topology
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
# Ranks and instances. Of a tree 4 instances have two full levels, and 3 one that is not.
SHAPES, TREES = {1: ([(1, 3)], [(1, 4)]), 2: ([(1, 3), (2, 2)], [(1, 4), (2, 3)])}.get(COMM.size, ([(3, 2)], [(3, 4)]))
WORKFLOWS = {
    "SC-B": Run(workflow="SC-B"),
    "SC-OB": Run(workflow="SC-OB"),
    "SC-OBR": Run(workflow="SC-OBR"),
    "SC-OBR, allreduce": Run(workflow="SC-OBR", sync="allreduce", reduce="chain"),
    "SC-B, allreduce": Run(workflow="SC-B", sync="allreduce", reduce="chain"),
}
BATCH = 13  # a multiple of no number of instances: some have more rows
pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "instances")


def instances(n, gather="slices"):
    return Instances(n, gather=gather, oversubscribe=True)


def train(net, ranks, given=Instances(), *, iterations=3, engine="reference", prepare=None, run=None, **fields):  # noqa: B008
    """Return the parameters after training on so many ranks, on these; None on the others."""
    comm = COMM.Split(0 if COMM.rank < ranks else MPI.UNDEFINED)
    if comm == MPI.COMM_NULL:
        return None
    param = nets.solver_with(net, **fields)
    run = run or Run(reduce="chain", bucket_bytes="3K")
    solver = Solver(param, world=World(comm), run=run, compute=Compute(engine=engine), instances=given)
    if prepare is not None:
        prepare(solver)
    solver.step(iterations)
    solver.close()
    comm.Free()
    return {p.label: p.blob.data.copy() for p in solver.net.parameters}


def lenet(folder, **options):
    return nets.lenet(folder / "db", BATCH, **{"pool": "AVE", **options})


def assert_equal(ours, expected):
    for label, values in (ours or {}).items():
        assert np.abs(values - expected[label]).max() <= 1e-5 * np.abs(expected[label]).max(), label


VARIANTS: dict[str, tuple[dict, dict]] = {
    "plain": ({}, {}),
    "dropout": ({"dropout": True}, {}),
    "crop and mirror": ({"transform": "crop_size: 24 mirror: true"}, {}),
    "valid labels only": ({"loss": "ignore_label: 3"}, {}),
    "iter_size and clipping": ({}, {"iter_size": 2, "clip_gradients": 0.5}),
    "LARS": ({}, {"type": "LARS"}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_instances_equal_one_rank(folder, variant):
    options, fields = VARIANTS[variant]
    net = lenet(folder, **options)
    expected = COMM.bcast(train(net, 1, **fields))
    for ranks, n in SHAPES:
        assert_equal(train(net, ranks, instances(n), **fields), expected)


@pytest.mark.parametrize("fields", [{}, {"iter_size": 2}, {"clip_gradients": 0.05}], ids=str)
def test_every_gather_gives_the_parameters_of_one_rank(folder, fields):
    net = nets.tower(folder / "db", BATCH)
    expected = COMM.bcast(train(net, 1, **fields))
    for gather in registered():
        for ranks, n in TREES:
            assert_equal(train(net, ranks, instances(n, gather), **fields), expected)


@needs_onednn
@pytest.mark.parametrize("variant", ["plain", "dropout"])
def test_instances_equal_one_rank_on_onednn(folder, variant):
    net = lenet(folder, smooth=True, **VARIANTS[variant][0])
    expected = COMM.bcast(train(net, 1, engine="onednn"))
    for ranks, n in SHAPES:
        assert_equal(train(net, ranks, instances(n), engine="onednn"), expected)


@pytest.mark.parametrize("fields", [{}, {"clip_gradients": 0.05}, {"iter_size": 2}], ids=str)
def test_every_workflow_gives_the_same_bits(folder, fields):
    net = nets.tower(folder / "db", BATCH)
    for ranks, n in SHAPES:
        if ranks == 1:
            continue
        found = [train(net, ranks, instances(n), run=run, **fields) for run in map(in_buckets, WORKFLOWS.values())]
        for label in found[0] or ():
            assert len({one[label].tobytes() for one in found}) == 1, label


def in_buckets(run):
    """Return a run with many buckets, and one order of adding."""
    return Run(workflow=run.workflow, sync=run.sync, reduce="chain", bucket_bytes="3K")


def test_weak_scaling_equals_one_rank_with_all_batches(folder):
    for ranks, n in SHAPES:
        expected = COMM.bcast(train(nets.lenet(folder / "db", 3 * ranks * n, pool="AVE"), 1))
        net, run = nets.lenet(folder / "db", 3, pool="AVE"), Run(scaling="weak")
        assert_equal(train(net, ranks, instances(n), run=run), expected)


def delays(seed):
    """Return a function that puts random delays between the layers of a solver's nets."""

    def prepare(solver):
        for i, net in enumerate(solver.nets):
            chance = random.Random(100 * seed + 10 * COMM.rank + i)
            for name in ("forward_layer", "backward_layer"):
                setattr(net, name, late(getattr(net, name), chance))

    return prepare


def late(call, chance):
    def delayed(i):
        if chance.random() < 0.1:
            time.sleep(chance.uniform(0, 200e-6))
        call(i)

    return delayed


@pytest.mark.parametrize("gather", [name for name, kind in registered().items() if kind.repeats])
def test_delays_anywhere_change_no_bit(folder, gather):
    ranks, net = min(2, COMM.size), nets.tower(folder / "db", BATCH)
    run = Run(workflow="SC-OBR", reduce="chain", bucket_bytes="3K")
    bits = set()
    for seed in range(8):
        found = train(net, ranks, instances(4, gather), iterations=6, prepare=delays(seed), run=run)
        bits.add(b"".join(values.tobytes() for values in (found or {}).values()))
    assert len(bits) == 1


@pytest.mark.parametrize("workflow", ["SC-B", "SC-OBR"])
def test_sixteen_instances_with_delays_give_the_bits_of_a_run_without(folder, workflow):
    ranks, net, run = min(2, COMM.size), nets.tower(folder / "db", 40), in_buckets(WORKFLOWS[workflow])
    given = {"run": run}  # in each iteration of which many threads take turns in
    expected, found = (train(net, ranks, instances(16), prepare=one, **given) for one in (None, delays(5)))
    for label, values in (found or {}).items():
        assert values.tobytes() == expected[label].tobytes(), label


BATCH_NORM = """
layer {{ name: "data" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.0078125 }}
  data_param {{ source: "{source}" batch_size: 12 backend: LMDB }} }}
layer {{ name: "bn" type: "BatchNorm" bottom: "data" top: "bn" batch_norm_param {{ moving_average_fraction: 0.75 }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "bn" top: "ip"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


@needs_onednn
@pytest.mark.parametrize("engine", ["reference", "onednn"])
def test_statistics_are_those_of_as_many_ranks(folder, engine):
    net = str(text_format.Parse(BATCH_NORM.format(source=folder / "db"), SolverParameter().net_param))
    expected = COMM.bcast(train(net, COMM.size, engine=engine))
    if COMM.size > 1:
        assert_equal(train(net, 1, instances(COMM.size), engine=engine), expected)


def two_domains(cores=None):
    """Return this rank's cores as those of two domains."""
    found = read_topology(cores).cores
    return Topology((Domain(0, found[:1]), Domain(1, found[-1:])))


@pytest.mark.parametrize("workflow", ["SC-B", "SC-OBR"])
@pytest.mark.parametrize("fields", [{}, {"iter_size": 2}], ids=str)
def test_a_copy_of_the_weights_in_each_domain_gives_the_same_bits(folder, monkeypatch, workflow, fields):
    ranks, net, run = min(2, COMM.size), nets.tower(folder / "db", BATCH), in_buckets(WORKFLOWS[workflow])
    expected = train(net, ranks, instances(4), run=run, **fields)
    monkeypatch.setattr(team, "read_topology", two_domains)
    monkeypatch.setattr(team, "rank_cores", lambda masks, rank, topology: topology.cores)

    def has_copies(solver):
        assert len({net.packed.data.ctypes.data for net in solver.nets}) == 2

    found = train(net, ranks, instances(4), run=run, prepare=has_copies, **fields)
    for label, values in (found or {}).items():
        assert values.tobytes() == expected[label].tobytes(), label
