"""Display: what a solver logs about its training, in Caffe's words.

All functions but `iteration` and `outputs` are collective.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from scaffe.monitor import waited
from scaffe.monitor.log import log, output_lines
from scaffe.net.net import Net
from scaffe.parallel import meter
from scaffe.parallel.hosts import crowding as crowding_of
from scaffe.parallel.hosts import describe, gpu_crowding
from scaffe.parallel.instances.instance_nets import InstanceNets
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.parallel.world import World


class Shown(NamedTuple):
    """An iteration that was displayed, and the time when it was, in seconds."""

    iter: int
    seconds: float


def start(world: World, net: Net, instances: InstanceNets | None, scaling: str, iter_size: int, rate: float) -> None:
    """Log the ranks' cores and instances, the net, its global batch, the learning rate, and the parameters' size.

    `net` is that of the first of the `instances`, which are None for a single one; its shapes are logged.
    """
    context = net.context
    for line in describe(world):
        log.info("%s%s", line, "" if instances else f", {world.threads} thread(s) each")
    if instances:
        threads = " or ".join(map(str, sorted({one.context.compute.threads for one in instances.nets})))
        log.info("%s, gather %s, %s thread(s) each", context.sharers, instances.gather, threads)
    crowding = instances.crowding() if instances else crowding_of(world)
    for warning in filter(None, (crowding, gpu_crowding(world), *_filled(net, instances))):
        log.warning("%s", warning)
    for line in net.describe():
        log.info("%s", line)
    if context.total_rows:
        division = "divides it over" if scaling == "strong" else f"gives {context.local_rows} to each of"
        text = "Global batch %d: %d sample(s) in each of %d pass(es); %s scaling %s %s"
        samples = context.total_rows
        who = context.sharers if context.size > world.size else f"{world.size} rank(s)"
        log.info(text, samples * iter_size, samples, iter_size, scaling, division, who)
    if world.is_root and not net.losses:
        log.warning("net '%s' has no loss, as a deploy net: nothing is learned", net.name)
    log.info("Learning rate %g, as given: not scaled by the number of ranks", rate)
    log.info("%d parameters in %d bytes", sum(p.blob.count for p in net.parameters), net.packed.nbytes)


def _filled(net: Net, instances: InstanceNets | None) -> list[str]:
    """Return a warning for each layer whose tops a program fills, which it could do in the first instance alone."""
    return [
        f"layer '{layer.name}' (Input): fill its tops in each net of solver.nets; solver.net is the first instance's"
        for layer in net.layers
        if instances and layer.type == "Input"
    ]


def iteration(net: Net, iter: int, loss: float, values: Mapping[str, np.ndarray], rate: float, last: Shown) -> Shown:
    """Log the smoothed loss, the train net's outputs and the rate, with the pace since the `last` display."""
    now, done = time.monotonic(), iter - last.iter
    seconds = now - last.seconds
    pace = f" ({done / seconds:.6g} iter/s, {seconds:.6g}s/{done} iters)" if done else ""
    log.info("Iteration %d%s, loss = %.6g", iter, pace, loss)
    outputs("Train", net, values)
    log.info("Iteration %d, lr = %.6g", iter, rate)
    return Shown(iter, now)


def end(world: World, nets: Sequence[Net], workflow: Workflow, iterations: int, seconds: float) -> None:
    """Log the communication hidden in `iterations`, and the share of `seconds` that ranks waited for data."""
    if world.size > 1 and iterations:
        meters = workflow.propagate.meter, workflow.aggregate.meter
        log.info("Overlap: %s", meter.describe(world, meters, iterations))
    if text := waited.describe(world, nets, seconds, nets[0].context.reader_threads):
        log.info("Reading: %s", text)


def outputs(kind: str, net: Net, values: Mapping[str, np.ndarray]) -> None:
    """Log a net's outputs, a line a number."""
    for k, line in enumerate(output_lines(values, net.loss_weights())):
        log.info("    %s net output #%d: %s", kind, k, line)


def train_outputs(world: World, nets: Sequence[Net]) -> dict[str, np.ndarray]:
    """Return the train net's outputs; parts of a sum over the global batch are summed over the instances and ranks.

    Other outputs are those of this rank's first instance.
    """
    net = nets[0]
    parts = {name for layer in net.layers for name in layer.param.top[: layer.summed_tops]}
    return {name: _summed(world, nets, name) if name in parts else _flat(net, name) for name in net.outputs}


def _summed(world: World, nets: Sequence[Net], name: str) -> np.ndarray:
    return world.allsums(sum(_flat(net, name).astype(np.float64) for net in nets))  # type: ignore[arg-type]


def _flat(net: Net, name: str) -> np.ndarray:
    return net.blobs[name].data.reshape(-1)
