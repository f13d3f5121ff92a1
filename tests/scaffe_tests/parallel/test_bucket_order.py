"""Buckets go out and come in in the order in which a pass needs them, each as soon as it may."""

import nets
import pytest
from mpi4py import MPI

import scaffe
from collectives import Communicator
from scaffe.parallel.aggregate import StagedAggregate
from scaffe.parallel.buckets import make_buckets
from scaffe.parallel.drive import Hook
from scaffe.parallel.propagate import StagedPropagate
from scaffe.parallel.world import World

COUNT = 5


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    folder = tmp_path_factory.mktemp("order")
    nets.write_images(folder / "db", 12)
    net = scaffe.Net(nets.solver_with(nets.tower(folder / "db")).net_param, scaffe.TRAIN)
    yield net
    net.close()


@pytest.fixture
def comm():
    made = Communicator(MPI.COMM_SELF)
    yield made
    made.free()


@pytest.fixture
def updated():
    """Return a list for the buckets that are updated."""
    return []


@pytest.fixture
def transfers(net, comm, updated, request):
    """Return the drive of SC-OBR's transfers over one rank, its buckets, a message a layer, and the messages noted."""
    share = getattr(request, "param", 0.0)
    world, drive, buckets = World(MPI.COMM_SELF), Hook(), make_buckets(net, 0)
    assert len(buckets) == COUNT
    propagate = StagedPropagate(world, net.packed, buckets, comm, True, drive.wait, share)
    given = world, net.packed, buckets, propagate, lambda bucket: updated.append(buckets.index(bucket)), lambda: None
    aggregate = StagedAggregate(*given, comm=comm, early=True, wait_until=drive.wait)
    drive.transfers = aggregate, propagate
    propagate.post()
    noted = []
    for transfer in drive.transfers:
        transfer.meter.note = lambda kind, bucket, begin, end, lane: lane is not None and noted.append((kind, bucket))
    yield drive, buckets, noted
    propagate.close()
    aggregate.close()


def test_each_bucket_is_updated_once_backward_has_been_through_it(transfers, updated):
    drive, buckets, noted = transfers
    aggregate = drive.transfers[0]
    aggregate.begin()
    for k in reversed(range(COUNT)):
        for layer in reversed(buckets[k].layers):
            aggregate.submit(layer)
        while aggregate.progress():  # as far as it goes
            pass
        assert updated == list(reversed(range(k, COUNT)))
    aggregate.drain()
    assert [bucket for kind, bucket in noted if kind == "aggregation"] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("transfers", "order"), [(0.0, [0, 1, 2, 3, 4]), (1.0, [4, 3, 2, 1, 0])], indirect=["transfers"]
)
def test_broadcasts_go_in_the_layers_order_or_ahead_in_that_of_the_updates(transfers, order):
    drive, buckets, noted = transfers
    aggregate, propagate = drive.transfers
    aggregate.begin()
    for k in reversed(range(COUNT)):
        for layer in reversed(buckets[k].layers):
            aggregate.submit(layer)
    aggregate.drain()
    propagate.sync()
    assert [bucket for kind, bucket in noted if kind == "propagation"] == order


@pytest.mark.parametrize("updated_buckets", [0, COUNT])
def test_closing_waits_for_broadcasts_unless_their_updates_never_came(transfers, updated_buckets):
    drive, _, _ = transfers
    _, propagate = drive.transfers
    waits = []
    propagate.wait_until = lambda is_done: waits.append(updated_buckets and drive.wait(is_done))
    propagate.begin()
    for bucket in range(updated_buckets):
        propagate.updated(bucket)
    assert propagate.is_broken_off == (updated_buckets < COUNT)
    propagate.close()
    assert len(waits) == (updated_buckets == COUNT)
    propagate.close = lambda: None  # the fixture's
