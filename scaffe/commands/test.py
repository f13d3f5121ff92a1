"""scaffe test."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import CAFFE, Parser
from scaffe.commands.parser import CAFFES, add_command, add_instances, add_net_flags, add_settings
from scaffe.commands.running import close, on_devices, open_nets, open_team
from scaffe.context import TEST
from scaffe.monitor import log as logs
from scaffe.monitor.log import log
from scaffe.monitor.watching import Watching
from scaffe.net.net import Net
from scaffe.parallel.detections import detection_scores
from scaffe.parallel.evaluate import BatchResult, means, run_batches
from scaffe.parallel.watch.heartbeats import watching
from scaffe.parallel.world import World
from scaffe.training.settings import Settings

RANK = 11


def add(top: Parser) -> None:
    """Add `test`."""
    command = add_command(top, "test", _test, "Score a net on its test data, divided over all ranks and instances.")
    command.flag("model", group=CAFFES, required=True, metavar="FILE", help="net prototxt")
    command.flag("weights", group=CAFFES, required=True, metavar="A,B", help=".caffemodel files")
    command.flag("iterations", group=CAFFES, type=int, default=50, metavar="N", help="batches to run")
    add_net_flags(command)
    add_instances(command)
    add_settings(command, Watching, "stall_seconds", "stall", "stall_abort")
    command.add_caffes(CAFFE)


def _test(arguments: argparse.Namespace) -> int:
    return on_devices(lambda world, settings: _score(world, arguments, settings), arguments)


def _score(world: World, a: argparse.Namespace, settings: Settings) -> int:
    team = open_team(world, settings.instances)
    nets = open_nets(world, team, a, settings.compute, TEST, a.iterations)
    log.info("Running for %d iterations.", a.iterations)
    with watching(world, nets[:1], settings.watching, team.all_records):
        batches = run_batches(nets, a.iterations, world, team)
    _report(nets[0], batches)
    close(team, nets)
    return 0


def _report(net: Net, batches: list[BatchResult]) -> None:
    """Log the scores as `caffe test` does."""
    scores = detection_scores(net)
    for batch in batches:
        outputs = {name: values for name, values in batch.outputs.items() if name not in scores}
        for line in logs.output_lines(outputs, {}):
            log.info("Batch %d, %s", batch.number, line)
    mean = means(batches, scores)
    log.info("Loss: %.6g", mean.loss)
    for line in logs.output_lines(mean.outputs, net.loss_weights()):
        log.info("%s", line)
