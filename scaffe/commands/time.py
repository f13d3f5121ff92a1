"""scaffe time."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import CAFFE
from scaffe.commands.parser import add_command, add_compute_flags
from scaffe.commands.running import on_all_ranks, open_net
from scaffe.context import TEST, TRAIN
from scaffe.monitor.log import log
from scaffe.parallel.world import World
from scaffe.tools import benchmark
from scaffe.training import replay


def add(commands) -> None:
    """Add `time`."""
    command = add_command(commands, "time", _time, "Time each layer of a net, forward and backward.")
    command.flag("model", required=True, metavar="FILE", help="net prototxt")
    command.flag("weights", metavar="A,B", help=".caffemodel files; without them the fillers'")
    command.flag("iterations", type=int, default=50, metavar="N", help="forward and backward passes")
    command.flag("phase", choices=("TRAIN", "TEST"), default="TRAIN")
    command.flag("profile", metavar="FILE.json", help="write the times for train's --compute replay:FILE.json")
    add_compute_flags(command)
    command.add_caffes(CAFFE)


def _time(arguments: argparse.Namespace) -> int:
    return on_all_ranks(lambda world: _measure(world, arguments), arguments)


def _measure(world: World, a: argparse.Namespace) -> int:
    net = open_net(world, a, TRAIN if a.phase == "TRAIN" else TEST)
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
