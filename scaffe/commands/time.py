"""scaffe time."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import CAFFE, Parser
from scaffe.commands.parser import CAFFES, add_command, add_net_flags
from scaffe.commands.running import on_devices, open_net
from scaffe.compute import Compute
from scaffe.context import TEST, TRAIN
from scaffe.monitor.log import log
from scaffe.parallel.world import World
from scaffe.tools import benchmark
from scaffe.training import replay

RANK = 12


def add(top: Parser) -> None:
    """Add `time`."""
    command = add_command(top, "time", _time, "Time each layer of a net, forward and backward.")
    command.flag("model", group=CAFFES, required=True, metavar="FILE", help="net prototxt")
    command.flag("weights", group=CAFFES, metavar="A,B", help=".caffemodel files; without them the fillers'")
    command.flag("iterations", group=CAFFES, type=int, default=50, metavar="N", help="forward and backward passes")
    command.flag("phase", group=CAFFES, choices=("TRAIN", "TEST"), default="TRAIN")
    command.flag("profile", metavar="FILE.json", help="write the times for train's --compute replay:FILE.json")
    add_net_flags(command)
    command.add_caffes(CAFFE)


def _time(arguments: argparse.Namespace) -> int:
    return on_devices(lambda world, settings: _measure(world, arguments, settings.compute), arguments)


def _measure(world: World, a: argparse.Namespace, compute: Compute) -> int:
    net = open_net(world, a, compute, TRAIN if a.phase == "TRAIN" else TEST)
    log.info("*** Benchmark begins ***")
    log.info("Testing for %d iterations.", a.iterations)
    times = benchmark.measure(net, a.iterations)
    for line in benchmark.lines(net, times, a.iterations):
        log.info("%s", line)
    if a.profile:
        world.on_root(lambda: replay.profile(net, times).save(a.profile))
    log.info("*** Benchmark ends ***")
    net.close()
    return 0
