"""Display: what a solver logs about its training, in Caffe's words. All functions but `outputs` are collective."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from scaffe.monitor import waited
from scaffe.monitor.log import log, output_lines
from scaffe.net import Net
from scaffe.parallel import meter
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.parallel.world import World


class Shown(NamedTuple):
    """An iteration that was displayed, and the time when it was, in seconds."""

    iter: int
    seconds: float


def start(world: World, net: Net, scaling: str, iter_size: int, rate: float) -> None:
    """Log the ranks' cores, the net, its global batch, the learning rate, and the parameters' size."""
    context = net.context
    for line in world.describe():
        log.info("%s, %d thread(s) each", line, world.threads)
    for crowding in filter(None, (world.crowding(), world.gpu_crowding())):
        log.warning("%s", crowding)
    for line in net.describe():
        log.info("%s", line)
    if context.total_rows:
        division = "divides it over" if scaling == "strong" else f"gives {context.local_rows} to each of"
        text = "Global batch %d: %d sample(s) in each of %d pass(es); %s scaling %s %d rank(s)"
        samples = context.total_rows
        log.info(text, samples * iter_size, samples, iter_size, scaling, division, world.size)
    log.info("Learning rate %g, as given: not scaled by the number of ranks", rate)
    log.info("%d parameters in %d bytes", sum(p.blob.count for p in net.parameters), net.packed.nbytes)


def iteration(world: World, net: Net, iter: int, loss: float, rate: float, last: Shown) -> Shown:
    """Log the smoothed loss, the train net's outputs and the rate, with the pace since the `last` display."""
    now, done = time.monotonic(), iter - last.iter
    seconds = now - last.seconds
    pace = f" ({done / seconds:.6g} iter/s, {seconds:.6g}s/{done} iters)" if done else ""
    log.info("Iteration %d%s, loss = %.6g", iter, pace, loss)
    outputs("Train", net, _train_outputs(world, net))
    log.info("Iteration %d, lr = %.6g", iter, rate)
    return Shown(iter, now)


def end(world: World, net: Net, workflow: Workflow, iterations: int, seconds: float) -> None:
    """Log the communication hidden in `iterations`, and the share of `seconds` that ranks waited for data."""
    if world.size > 1 and iterations:
        meters = workflow.propagate.meter, workflow.aggregate.meter
        log.info("Overlap: %s", meter.describe(world, meters, iterations))
    if text := waited.describe(world, net, seconds, net.context.reader_threads):
        log.info("Reading: %s", text)


def outputs(kind: str, net: Net, values: Mapping[str, np.ndarray]) -> None:
    """Log a net's outputs, a line a number."""
    for k, line in enumerate(output_lines(values, net.loss_weights())):
        log.info("    %s net output #%d: %s", kind, k, line)


def _train_outputs(world: World, net: Net) -> dict[str, np.ndarray]:
    """Return the train net's outputs; parts of a sum over the global batch are summed over the ranks."""
    parts = {name for layer in net.layers for name in layer.param.top[: layer.summed_tops]}
    values = {name: net.blobs[name].data.reshape(-1) for name in net.outputs}
    return {name: world.allsums(value) if name in parts else value for name, value in values.items()}
