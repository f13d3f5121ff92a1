"""Display: what a solver logs about its training, in Caffe's words. All functions are collective."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from scaffe.monitor import waited
from scaffe.monitor.log import log, output_lines
from scaffe.monitor.record import FORWARD
from scaffe.net import Net
from scaffe.parallel import meter

if TYPE_CHECKING:
    from scaffe.training.solver import Solver


def start(solver: Solver) -> None:
    """Say which cores, global batch and rate are in force, and what the net looks like."""
    world, net, passes = solver.world, solver.net, solver.param.iter_size
    context = net.context
    for line in world.describe():
        log.info("%s, %d thread(s) each", line, world.threads)
    for crowding in filter(None, (world.crowding(), world.gpu_crowding())):
        log.warning("%s", crowding)
    for line in net.describe():
        log.info("%s", line)
    if context.total_rows:
        division = "divides it over" if solver.scaling == "strong" else f"gives {context.local_rows} to each of"
        text = "Global batch %d: %d sample(s) in each of %d pass(es); %s scaling %s %d rank(s)"
        samples = context.total_rows
        log.info(text, samples * passes, samples, passes, solver.scaling, division, world.size)
    log.info("Learning rate %g, as given: not scaled by the number of ranks", solver.rate())
    log.info("%d parameters in %d bytes", sum(p.blob.count for p in net.parameters), net.packed.nbytes)


def iteration(solver: Solver, since: int, then: float) -> tuple[int, float]:
    """Log the smoothed loss, the train net's outputs and the rate. Return this iteration and the time."""
    now, done = time.monotonic(), solver.iter - since
    pace = f" ({done / (now - then):.6g} iter/s, {now - then:.6g}s/{done} iters)" if done else ""
    log.info("Iteration %d%s, loss = %.6g", solver.iter, pace, solver.losses.mean)
    outputs("Train", solver.net, _train_outputs(solver))
    log.info("Iteration %d, lr = %.6g", solver.iter, solver.rate())
    return solver.iter, now


def final_loss(solver: Solver) -> None:
    """Log the smoothed loss after the last update, as Caffe does. Raise DivergedError where it is not finite."""
    solver.world.record.begin(solver.iter)
    solver.world.record.at(FORWARD)
    solver.propagate.sync()
    solver.net.forward()
    solver.statistics.average()
    solver.rule.look()
    solver.losses.take(solver.net.loss(), solver.iter)
    solver.losses.settle()
    log.info("Iteration %d, loss = %.6g", solver.iter, solver.losses.mean)


def end(solver: Solver, seconds: float) -> None:
    """Say how much communication was hidden and which share of `seconds` ranks waited for data, where there was any."""
    workflow, iterations = solver.workflow, solver.trial.iterations
    if solver.world.size > 1 and iterations:
        meters = workflow.propagate.meter, workflow.aggregate.meter
        log.info("Overlap: %s", meter.describe(solver.world, meters, iterations))
    if text := waited.describe(solver.world, solver.net, seconds, solver.net.context.reader_threads):
        log.info("Reading: %s", text)


def outputs(kind: str, net: Net, values: Mapping[str, np.ndarray]) -> None:
    """Log a net's outputs, a line a number."""
    for k, line in enumerate(output_lines(values, net.loss_weights())):
        log.info("    %s net output #%d: %s", kind, k, line)


def _train_outputs(solver: Solver) -> dict[str, np.ndarray]:
    """Return the train net's outputs; what is a part of a sum over the global batch is summed over the ranks."""
    net, allsums = solver.net, solver.world.allsums
    parts = {name for layer in net.layers for name in layer.param.top[: layer.summed_tops]}
    values = {name: net.blobs[name].data.reshape(-1) for name in net.outputs}
    return {name: allsums(value) if name in parts else value for name, value in values.items()}
