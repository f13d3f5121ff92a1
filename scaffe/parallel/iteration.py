"""The training iteration: one loop, whatever the workflow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np

from scaffe.engine import Loss
from scaffe.monitor.record import BACKWARD, FORWARD, LOSS, UPDATE, RankRecord
from scaffe.parallel.instances.joined_loss import joined
from scaffe.parallel.replica import Replica
from scaffe.parallel.workflows.workflow import Workflow


class Averages(Protocol):
    """The statistics of an iteration."""

    def average(self) -> None:
        """Average them over all ranks. Collective."""


@np.errstate(all="ignore")  # a loss that is not finite is reported once, with its layer
def iterate(
    workflow: Workflow,
    statistics: Averages,
    passes: int,
    agree_on_loss: Callable[[Loss], None],
    record: RankRecord,
) -> None:
    """Run one iteration of `passes` forward and backward passes, in which the workflow updates the parameters.

    `agree_on_loss` gets this rank's part of the mean loss after the last forward pass. It may raise on all ranks:
    before any gradient of this iteration has changed a parameter. `record` notes each step.
    """
    parts = [Part(replica, workflow, passes) for replica in workflow.replicas]
    loss = joined([part.loss for part in parts])

    def agree() -> None:
        record.at(LOSS)
        loss.send()
        agree_on_loss(loss)
        workflow.begin()

    workflow.expect()
    record.at(FORWARD)
    workflow.propagate.post()
    for left in reversed(range(passes)):
        feed(workflow, record)
        backwards = [partial(part.backward, not left) for part in parts]
        workflow.drive.passes([part.forward for part in parts], nothing if left else agree, backwards)
    record.at(UPDATE)
    workflow.drain()
    statistics.average()


def nothing() -> None:
    """Do nothing between the passes that are not the last."""


@np.errstate(all="ignore")
def update(workflow: Workflow) -> None:
    """Sum the gradients that lie in the nets over the ranks, and update the parameters by the sums."""
    workflow.propagate.sync()
    workflow.begin()
    for replica in workflow.replicas:
        for i in reversed(range(len(replica.net.layers))):
            replica.gradients.submit(i)
        replica.gradients.finish()
    workflow.aggregate.drain()


@np.errstate(all="ignore")
def forward(workflow: Workflow) -> Loss:
    """Return the loss of one forward pass over the next batch, whose parameters are here."""
    parts = [Part(replica, workflow, 1) for replica in workflow.replicas]
    feed(workflow, workflow.replicas[0].record)
    workflow.drive.run([part.forward for part in parts])
    for part in parts:
        part.net.context.batch_number += 1
    loss = joined([part.loss for part in parts])
    loss.send()
    return loss


def feed(workflow: Workflow, record: RankRecord) -> None:
    """Take the batches that the root reads for all ranks: in the main thread, which calls MPI."""
    for replica in workflow.replicas:
        net = replica.net
        if net.context.scatter is None:
            continue
        for i, layer in enumerate(net.layers):
            if layer.reads_ahead:
                record.at(FORWARD, i)
                net.feed_layer(i)


class Part:
    """A net's part of an iteration of so many passes, computed by one thread at a time."""

    def __init__(self, replica: Replica, workflow: Workflow, passes: int):
        self.net, self.record, self.gradients = replica.net, replica.record, replica.gradients
        self.weights, self.workflow, self.passes = replica.weights, workflow, passes
        self.weights.begin()
        self.groups = self.net.groups(workflow.starts)
        self.loss = self.net.engine.loss(self.net)

    def forward(self) -> None:
        """Compute all layers, each once its parameters are here, and add to the loss."""
        self.net.engine.enter()
        for group in self.groups:
            self.record.at(FORWARD, group[0])
            for i in group:
                self.workflow.propagate.wait(i)
                self.weights.fetch(i)
            self.net.engine.forward(self.net, group)
            self.workflow.drive.between()
        self.loss.add(self.passes)

    def backward(self, last: bool) -> None:
        """Compute all gradients; in the last pass submit each layer's as soon as they are complete."""
        for group in reversed(self.groups):
            self.record.at(BACKWARD, group[-1])
            self.net.engine.backward(self.net, group)
            if last:
                for i in reversed(group):
                    self.gradients.submit(i)
            self.workflow.drive.between()
        if last:
            self.record.at(BACKWARD)
            self.gradients.finish()
        self.net.context.batch_number += 1
