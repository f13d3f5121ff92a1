"""Workflow: which ways of propagation and aggregation go together, and who drives them.

SC-B waits for both (S-Caffe, section 4.1); SC-OB overlaps propagation with the forward pass (4.2); SC-OBR also
aggregation with the backward pass (4.3), and beyond the paper: each bucket is updated, and sent out for the next
iteration, as soon as its sum is complete. `sync` "allreduce" has every rank update instead (swCaffe, section V.A).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collectives import Communicator
from collectives.clusters import find_cluster
from collectives.defaults import STEP
from collectives.tuning import FABRIC
from scaffe.monitor.log import log
from scaffe.net import Net
from scaffe.parallel.aggregate import Aggregate, BlockingAggregate, StagedAggregate
from scaffe.parallel.buckets import make_buckets, parse_bytes, suited_bytes
from scaffe.parallel.drive import DRIVES, Helper, Hook, Trial
from scaffe.parallel.ordering import Ordering
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.run import Run
from scaffe.parallel.world import World

FEW_NODES = 2  # up to which broadcasts never share a link's direction with reduces


@dataclass
class Workflow:
    """The ways that one net's iterations take, and what the first of them decide."""

    propagate: Propagate
    aggregate: Aggregate
    trial: Trial
    ordering: Ordering | None = None
    starts: frozenset[int] = frozenset()  # layers before which the computation is looked at, as messages depend on it

    @property
    def drive(self) -> Hook | Helper:
        """Who drives the next iteration."""
        return self.trial.drive

    def took(self, seconds: float) -> str:
        """Take note of an iteration's time; return what that decided, if anything, in a sentence. Collective."""
        if not self.trial.is_over:
            return self.trial.took(seconds)
        return self.ordering.took() if self.ordering else ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be decided."""
        return self.trial.is_over and (self.ordering is None or self.ordering.is_over)

    def close(self) -> None:
        """End the helper thread, and give back what the ways hold. Collective."""
        self.trial.close()
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
    buckets = make_buckets(net, _bucket_bytes(run, world, comm, net))
    if comm is None or world.size == 1:
        alone = Propagate(world, net.packed, None)
        updating = Aggregate(world, net.packed, buckets, alone, update, prepare)
        return Workflow(alone, updating, Trial([Hook()], world.allsums))
    what = "allreduce" if run.sync == "allreduce" else "reduce"
    forward, backward = run.overlaps
    names = [] if not forward else list(DRIVES) if run.drive == "auto" else [run.drive]
    trial = Trial([DRIVES[name]() for name in names or ["hook"]], world.allsums)

    def wait(is_done: Callable[[], bool]) -> None:
        trial.drive.wait(is_done)

    early = backward and not clips
    disturbs = early and comm.group.shape[0] > FEW_NODES
    ahead = 0.0 if disturbs else 1.0
    if forward and what == "reduce":
        propagate: Propagate = StagedPropagate(world, net.packed, buckets, comm, early, wait, ahead, **run.how)
    else:
        everywhere = what == "allreduce"
        how = {"algorithm": "auto"} if everywhere else run.how  # a ring, say, is no broadcast
        propagate = Propagate(world, net.packed, comm, everywhere, **how)
    given = world, net.packed, buckets, propagate, update, prepare, what
    if backward:
        aggregate: Aggregate = StagedAggregate(*given, comm=comm, early=early, wait_until=wait, **run.how)
    else:
        aggregate = BlockingAggregate(*given, comm=comm, **run.how)
    trial.take_ways(aggregate, propagate)
    ordering = None
    if disturbs and isinstance(propagate, StagedPropagate) and isinstance(aggregate, StagedAggregate):
        ordering = Ordering(propagate, aggregate, world.allsums)
    starts = frozenset(bucket.layers[0] for bucket in buckets) if forward or backward else frozenset()
    return Workflow(propagate, aggregate, trial, ordering, starts)


def _bucket_bytes(run: Run, world: World, comm: Communicator | None, net: Net) -> float:
    """Return the most bytes of a bucket; for "auto" those that suit the described network, as the root knows it."""
    if run.bucket_bytes != "auto":
        return parse_bytes(run.bucket_bytes)
    if comm is None:
        return 0
    shape = world.comm.bcast(comm.shape, world.root)
    cluster = find_cluster("infiniband" if shape.network == FABRIC else "ethernet")
    inside = shape.nodes == 1
    alpha = STEP + (cluster.alpha_in if inside else cluster.alpha)
    beta = cluster.beta_in if inside else cluster.beta
    nbytes = suited_bytes(net.packed.nbytes, alpha, beta)
    why = f"{1e6 * alpha:.3g} us a message and {1e-9 / beta:.3g} GB/s, as the description of {cluster.name} has it"
    log.info("Buckets of up to %d bytes suit %s: %s", nbytes, shape, why)
    return nbytes
