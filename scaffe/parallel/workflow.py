"""Workflow: which ways of propagation and aggregation go together, and who drives them.

SC-B waits for both (S-Caffe, section 4.1); SC-OB overlaps propagation with the forward pass (4.2); SC-OBR also
aggregation with the backward pass (4.3), and beyond the paper: each bucket is updated, and sent out for the next
iteration, as soon as its sum is complete. `sync` "allreduce" has every rank update instead (swCaffe, section V.A).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collectives import Communicator
from scaffe.errors import ScaffeError
from scaffe.net import Net
from scaffe.parallel.aggregate import Aggregate, BlockingAggregate, StagedAggregate
from scaffe.parallel.buckets import make_buckets, parse_bytes
from scaffe.parallel.drive import DRIVES, Helper, Hook
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.world import World

WORKFLOWS = ("auto", "SC-B", "SC-OB", "SC-OBR")
SYNCS = ("reduce-bcast", "allreduce")


@dataclass(frozen=True)
class Run:
    """How the ranks work together, as the command line and a run's configuration name it.

    `workflow` is one of WORKFLOWS, `sync` of SYNCS, `drive` of DRIVES or "auto". `reduce` names the collectives'
    algorithm ("auto", "mpi", "chain", "cb", ...), `chain_size` its groups, `chunk_bytes` its messages (0: as tuned).
    Buckets have up to `bucket_bytes` ("0", "4M", "inf").
    """

    workflow: str = "SC-B"
    sync: str = "reduce-bcast"
    reduce: str = "mpi"
    chain_size: int | None = None
    chunk_bytes: int = 0
    bucket_bytes: str = "4M"
    drive: str = "helper"

    def check(self) -> None:
        """Raise ScaffeError where a field makes no sense."""
        known = {"workflow": WORKFLOWS, "sync": SYNCS, "drive": ("auto", *DRIVES)}
        for field, values in known.items():
            if getattr(self, field) not in values:
                raise ScaffeError(f"unknown {field} '{getattr(self, field)}'; known: {' '.join(values)}")
        if self.chunk_bytes < 0:
            raise ScaffeError(f"chunk-bytes must be 0 or more, got {self.chunk_bytes}")
        try:
            parse_bytes(self.bucket_bytes)
        except ValueError:
            raise ScaffeError(
                f"bucket-bytes must be a number of bytes such as 4M, or inf: '{self.bucket_bytes}'"
            ) from None

    @property
    def how(self) -> dict[str, object]:
        """What the collectives are told."""
        return {"algorithm": self.reduce, "chain_size": self.chain_size, "chunk_bytes": self.chunk_bytes}


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
        propagate = Propagate(world, net.packed)
        return Workflow(propagate, Aggregate(world, net.packed, buckets, propagate, update, prepare), drive)
    what = "allreduce" if run.sync == "allreduce" else "reduce"
    overlaps = run.workflow in ("SC-OB", "SC-OBR", "auto")
    drive = DRIVES["helper" if run.drive == "auto" else run.drive]() if overlaps else Hook()
    early = run.workflow in ("SC-OBR", "auto") and not clips
    if overlaps and run.sync != "allreduce":
        propagate = StagedPropagate(world, net.packed, buckets, comm, early, drive.wait, **run.how)
    else:
        propagate = Propagate(world, net.packed, everywhere=run.sync == "allreduce")
    given = world, net.packed, buckets, propagate, update, prepare, what
    if run.workflow in ("SC-OBR", "auto"):
        aggregate: Aggregate = StagedAggregate(*given, comm=comm, early=early, wait_until=drive.wait, **run.how)
    else:
        aggregate = BlockingAggregate(*given, comm=comm, **run.how)
    drive.ways = (aggregate, propagate)
    return Workflow(propagate, aggregate, drive)
