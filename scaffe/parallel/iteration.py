"""The training iteration: one loop, whatever the workflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from scaffe.engine import Group, Loss
from scaffe.monitor.record import BACKWARD, FORWARD, LOSS, UPDATE, RankRecord
from scaffe.net import Net
from scaffe.parallel.statistics import Statistics
from scaffe.parallel.workflows.workflow import Workflow


@np.errstate(all="ignore")  # a loss that is not finite is reported once, with its layer
def iterate(
    net: Net,
    workflow: Workflow,
    statistics: Statistics,
    passes: int,
    agree_on_loss: Callable[[Loss], None],
    record: RankRecord,
) -> None:
    """Run one iteration of `passes` forward and backward passes, in which the workflow updates the parameters.

    `agree_on_loss` gets this rank's part of the mean loss after the last forward pass. It may raise on all ranks:
    before any gradient of this iteration has changed a parameter. `record` notes each step.
    """
    groups, loss = net.engine.groups(net, workflow.starts), net.engine.loss(net)
    net.clear_param_diffs()
    record.at(FORWARD)
    workflow.propagate.post()
    for left in reversed(range(passes)):
        feed(net, record)
        workflow.drive.run(partial(forward, net, groups, workflow, loss, passes, record))
        if not left:
            record.at(LOSS)
            loss.send()
            agree_on_loss(loss)
            workflow.aggregate.begin()
        workflow.drive.run(partial(backward, net, groups, workflow, not left, record))
        net.context.batch_number += 1
    record.at(UPDATE)
    workflow.aggregate.drain()
    statistics.average()


def feed(net: Net, record: RankRecord) -> None:
    """Take the batches that the root reads for all ranks: in the main thread, which calls MPI."""
    if net.context.scatter is None:
        return
    for i, layer in enumerate(net.layers):
        if layer.reads_ahead:
            record.at(FORWARD, i)
            net.feed_layer(i)


def forward(net: Net, groups: Sequence[Group], workflow: Workflow, loss: Loss, passes: int, record: RankRecord) -> None:
    """Compute all layers, each once its parameters are here, and add to the loss."""
    net.engine.enter()
    for group in groups:
        record.at(FORWARD, group[0])
        for i in group:
            workflow.propagate.wait(i)
        net.engine.forward(net, group)
        workflow.drive.between()
    loss.add(passes)


def backward(net: Net, groups: Sequence[Group], workflow: Workflow, last: bool, record: RankRecord) -> None:
    """Compute all gradients; in the last pass submit each layer's as soon as they are complete."""
    for group in reversed(groups):
        record.at(BACKWARD, group[-1])
        net.engine.backward(net, group)
        if last:
            for i in reversed(group):
                workflow.aggregate.submit(i)
        workflow.drive.between()
