"""The training iteration: one loop, whatever the way parameters and gradients travel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.monitor.record import BACKWARD, FORWARD, LOSS, UPDATE, RankRecord
from scaffe.net import Net
from scaffe.parallel.statistics import Statistics
from scaffe.parallel.workflows.workflow import Workflow


@np.errstate(all="ignore")  # a loss that is not finite is told once, and well
def iterate(
    net: Net,
    workflow: Workflow,
    statistics: Statistics,
    passes: int,
    agree_on_loss: Callable[[Any], None],
    record: RankRecord,
) -> None:
    """Run one iteration of `passes` forward and backward passes, and have the parameters updated.

    `agree_on_loss` gets this rank's part of the mean loss after the last forward pass, or what is on its way to
    become it, and may raise on all ranks: before any gradient of this iteration has changed a parameter.
    `record` is told each step.
    """
    propagate, aggregate, drive = workflow.propagate, workflow.aggregate, workflow.drive

    report, runs = net.context.report, net.runs(workflow.starts)
    fed = [i for i, layer in enumerate(net.layers) if net.context.scatter and hasattr(layer, "feed")]
    gpu = net.context.gpu

    def forward() -> None:
        if gpu is not None:
            gpu.use()  # the thread that computes may be another one
        for run in runs:
            record.at(FORWARD, run[0])
            for i in run:
                propagate.wait(i)
            net.forward_run(run)
            drive.between()
        if report is not None:
            net.add_loss(1 / passes, first=k == 0)

    def backward() -> None:
        for run in reversed(runs):
            record.at(BACKWARD, run[-1])
            net.backward_run(run)
            if last:
                for i in reversed(run):
                    aggregate.submit(i)
            drive.between()

    net.clear_param_diffs()
    record.at(FORWARD)
    propagate.post()
    loss = 0.0
    for k in range(passes):
        for i in fed:  # here, where MPI may be called whoever computes
            record.at(FORWARD, i)
            net.feed_layer(i)
        drive.run(forward)
        last = k == passes - 1
        if report is None:
            loss += net.loss() / passes
        if last:
            record.at(LOSS)
            agree_on_loss(loss if report is None else report.send())
            aggregate.begin()
        drive.run(backward)
        net.context.batch_number += 1
    record.at(UPDATE)
    aggregate.drain()
    statistics.average()
