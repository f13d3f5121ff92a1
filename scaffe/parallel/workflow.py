"""Workflow: which ways of propagation and aggregation go together, and who drives them.

SC-B waits for both (S-Caffe, section 4.1); SC-OB overlaps propagation with the forward pass (4.2); SC-OBR also
aggregation with the backward pass (4.3), and beyond the paper: each bucket is updated, and sent out for the next
iteration, as soon as its sum is complete. `sync` "allreduce" has every rank update instead (swCaffe, section V.A).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from collectives import Communicator, tuning
from collectives.model.clusters import find_cluster
from collectives.tuning.modelled import STEP
from scaffe.monitor.log import log
from scaffe.net import Net
from scaffe.parallel.aggregate import Aggregate, BlockingAggregate, StagedAggregate
from scaffe.parallel.buckets import Bucket, make_buckets, parse_bytes, suited_bytes
from scaffe.parallel.drive import DRIVES, Helper, Hook
from scaffe.parallel.ordering import Ordering
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.run import Run
from scaffe.parallel.sums import Sums
from scaffe.parallel.world import World
from scaffe.solvers.rule import Rule

FEW_NODES = 2  # up to which broadcasts never share a link's direction with reduces


@dataclass
class Workflow:
    """The ways that one net's iterations take, who drives them, and what the first of them decide."""

    propagate: Propagate
    aggregate: Aggregate
    drive: Hook | Helper
    sums: Sums | None = None
    ordering: Ordering | None = None
    starts: frozenset[int] = frozenset()  # layers before which the computation is looked at, as messages depend on it

    def took(self) -> str:
        """Take note of an iteration; return what that decided, if anything, in a sentence. Collective."""
        return self.ordering.took() if self.ordering else ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be decided."""
        return self.ordering is None or self.ordering.is_over

    def close(self) -> None:
        """End the helper thread, and give back what the ways hold, once nothing is under way. Collective."""
        self.drive.close()
        self.propagate.close()
        self.aggregate.close()
        if self.sums is not None:
            self.sums.close()


def make_workflow(
    run: Run,
    world: World,
    comm: Communicator | None,
    net: Net,
    update: Callable[[Bucket], None],
    rule: Rule,
) -> Workflow:
    """Return the ways that `run`, one of a run's candidates, names; one rank alone needs none. Collective.

    `update` has the `rule` update a bucket.
    """
    if comm is None or world.size == 1:
        alone = Propagate(world, net.packed, None)
        updating = Aggregate(world, net.packed, make_buckets(net, inf), alone, update, rule.clip)
        return Workflow(alone, updating, Hook())
    what = "allreduce" if run.sync == "allreduce" else "reduce"
    forward, backward = run.overlaps
    drive = DRIVES[run.drive]() if forward else Hook()
    early = backward and not rule.clips
    buckets = make_buckets(net, _bucket_bytes(run, world, comm, net), cut=early and rule.elementwise)
    disturbs = early and comm.group.shape[0] > FEW_NODES
    ahead = 0.0 if disturbs else 1.0
    if forward and what == "reduce":
        propagate: Propagate = StagedPropagate(
            world, net.packed, buckets, comm, early, drive.wait, ahead, **run.how_down
        )
    else:
        everywhere = what == "allreduce"
        how = {"algorithm": "auto"} if everywhere else run.how_down  # a ring, say, is no broadcast
        propagate = Propagate(world, net.packed, comm, everywhere, **how)
    given = world, net.packed, buckets, propagate, update, rule.clip, what
    if backward:
        aggregate: Aggregate = StagedAggregate(*given, comm=comm, early=early, wait_until=drive.wait, **run.how)
    else:
        aggregate = BlockingAggregate(*given, comm=comm, **run.how)
    sums = Sums(world, drive.wait)
    drive.ways = aggregate, propagate, sums
    ordering = None
    if disturbs and isinstance(propagate, StagedPropagate) and isinstance(aggregate, StagedAggregate):
        ordering = Ordering(propagate, aggregate, world.allsums)
    starts = frozenset(bucket.layers[0] for bucket in buckets) if forward or backward else frozenset()
    return Workflow(propagate, aggregate, drive, sums, ordering, starts)


def _bucket_bytes(run: Run, world: World, comm: Communicator, net: Net) -> float:
    """Return the most bytes of a bucket; for "auto" those that suit the network, as the root's tables know it."""
    if run.bucket_bytes != "auto":
        return parse_bytes(run.bucket_bytes)
    alpha, beta, source = world.comm.bcast(_line(comm) if world.is_root else (0.0, 0.0, ""), world.root)
    nbytes = suited_bytes(net.packed.nbytes, alpha, beta)
    why = f"{1e6 * alpha:.3g} us a message and {1e-9 / beta:.3g} GB/s, as {source} has it"
    log.info("Buckets of up to %d bytes suit %s: %s", nbytes, comm.shape, why)
    return nbytes


def _line(comm: Communicator) -> tuple[float, float, str]:
    """Return seconds a message and a byte, and who says so: the tuning, or else the description of such a cluster."""
    table, shape = comm.table or tuning.shipped(), comm.shape
    if found := table.line("reduce", shape, shape.nodes == 1):
        return STEP + found[0], found[1], table.source
    cluster = find_cluster("infiniband" if shape.network == tuning.FABRIC else "ethernet")
    inside = shape.nodes == 1
    alpha, beta = (cluster.alpha_in, cluster.beta_in) if inside else (cluster.alpha, cluster.beta)
    return STEP + alpha, beta, f"the description of {cluster.name}"
