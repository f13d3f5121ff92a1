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
from scaffe.parallel.drive import DRIVES, Helper, Hook, Trial
from scaffe.parallel.ordering import Ordering
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.run import Run
from scaffe.parallel.world import World


@dataclass
class Workflow:
    """The ways that one net's iterations take, and what the first of them decide."""

    propagate: Propagate
    aggregate: Aggregate
    trial: Trial
    ordering: Ordering | None = None

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
    buckets = make_buckets(net, parse_bytes(run.bucket_bytes))
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
    if forward and what == "reduce":
        propagate: Propagate = StagedPropagate(world, net.packed, buckets, comm, early, wait, **run.how)
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
    if early and isinstance(propagate, StagedPropagate) and isinstance(aggregate, StagedAggregate):
        ordering = Ordering(propagate, aggregate, world.allsums)
    return Workflow(propagate, aggregate, trial, ordering)
