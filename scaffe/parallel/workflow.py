"""Workflow: which ways of propagation and aggregation go together, and who drives them.

SC-B waits for both (S-Caffe, section 4.1); SC-OB overlaps propagation with the forward pass (4.2); SC-OBR also
aggregation with the backward pass (4.3), and beyond the paper: each bucket is updated, and sent out for the next
iteration, as soon as its sum is complete. `sync` "allreduce" has every rank update instead (swCaffe, section V.A).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collectives import Communicator
from scaffe.net import Net
from scaffe.parallel.aggregate import Aggregate, BlockingAggregate, StagedAggregate
from scaffe.parallel.buckets import make_buckets, parse_bytes
from scaffe.parallel.drive import DRIVES, Helper, Hook
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.run import Run
from scaffe.parallel.world import World


@dataclass
class Workflow:
    """The ways that one net's iterations take."""

    propagate: Propagate
    aggregate: Aggregate
    drive: Hook | Helper

    def close(self) -> None:
        """End the helper thread, and give back what the ways hold. Collective."""
        self.drive.close()
        self.propagate.close()
        self.aggregate.close()


def make_workflow(
    run: Run,
    world: World,
    comm: Communicator | None,
    net: Net,
    update: Callable[[Sequence[int]], None],
    prepare: Callable[[], object],
    clips: bool,
) -> Workflow:
    """Return the ways that `run` names; one rank alone needs none. Collective.

    `clips` says that all sums are needed before the first update.
    """
    buckets = make_buckets(net, parse_bytes(run.bucket_bytes))
    drive: Hook | Helper = Hook()
    if comm is None or world.size == 1:
        propagate = Propagate(world, net.packed, None)
        return Workflow(propagate, Aggregate(world, net.packed, buckets, propagate, update, prepare), drive)
    what = "allreduce" if run.sync == "allreduce" else "reduce"
    forward, backward = run.overlaps
    drive = DRIVES["helper" if run.drive == "auto" else run.drive]() if forward else Hook()
    early = backward and not clips
    if forward and what == "reduce":
        propagate = StagedPropagate(world, net.packed, buckets, comm, early, drive.wait, **run.how)
    else:
        everywhere = what == "allreduce"
        how = {"algorithm": "auto"} if everywhere else run.how  # a ring, say, is no broadcast
        propagate = Propagate(world, net.packed, comm, everywhere, **how)
    given = world, net.packed, buckets, propagate, update, prepare, what
    if backward:
        aggregate: Aggregate = StagedAggregate(*given, comm=comm, early=early, wait_until=drive.wait, **run.how)
    else:
        aggregate = BlockingAggregate(*given, comm=comm, **run.how)
    drive.ways = (aggregate, propagate)
    return Workflow(propagate, aggregate, drive)
