"""scaffe test."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import CAFFE
from scaffe.commands.parser import add_command, add_compute_flags, add_stall_flags
from scaffe.commands.running import on_all_ranks, open_net
from scaffe.context import TEST
from scaffe.monitor import log as logs
from scaffe.monitor.log import log
from scaffe.net import Net
from scaffe.parallel.evaluate import BatchResult, batch_numbers, means, run_batches
from scaffe.parallel.stall import watching
from scaffe.parallel.world import World


def add(commands) -> None:
    """Add `test`."""
    command = add_command(commands, "test", _test, "Score a net on its test data, divided over all ranks.")
    command.flag("model", required=True, metavar="FILE", help="net prototxt")
    command.flag("weights", required=True, metavar="A,B", help=".caffemodel files")
    command.flag("iterations", type=int, default=50, metavar="N", help="batches to run")
    add_stall_flags(command)
    add_compute_flags(command)
    command.add_caffes(CAFFE)


def _test(arguments: argparse.Namespace) -> int:
    return on_all_ranks(lambda world: _score(world, arguments), arguments)


def _score(world: World, a: argparse.Namespace) -> int:
    net = open_net(world, a, TEST, batch_numbers(world, a.iterations))
    log.info("Running for %d iterations.", a.iterations)
    with watching(world, [net], a.stall_seconds, a.stall_abort):
        batches = run_batches(net, a.iterations, world)
    _report(net, batches)
    net.close()
    return 0


def _report(net: Net, batches: list[BatchResult]) -> None:
    """Log the scores as `caffe test` does."""
    for batch in batches:
        for line in logs.output_lines(batch.outputs, {}):
            log.info("Batch %d, %s", batch.number, line)
    mean = means(batches)
    log.info("Loss: %.6g", mean.loss)
    for line in logs.output_lines(mean.outputs, net.loss_weights()):
        log.info("%s", line)
