"""scaffe time."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import CAFFE, Parser
from scaffe.commands.parser import CAFFES, add_command, add_instances, add_net_flags
from scaffe.commands.running import close, on_devices, open_nets, open_team
from scaffe.context import TEST, TRAIN
from scaffe.monitor.log import log
from scaffe.parallel.evaluate import run_each
from scaffe.parallel.world import World
from scaffe.tools import benchmark
from scaffe.tools.layer_kernels import watch
from scaffe.training import replay
from scaffe.training.settings import Settings

RANK = 12
WATCHED = 3  # iterations at most in which kernels are watched, which takes time


def add(top: Parser) -> None:
    """Add `time`."""
    command = add_command(top, "time", _time, "Time each layer of a net, forward and backward.")
    command.flag("model", group=CAFFES, required=True, metavar="FILE", help="net prototxt")
    command.flag("weights", group=CAFFES, metavar="A,B", help=".caffemodel files; without them the fillers'")
    command.flag("iterations", group=CAFFES, type=int, default=50, metavar="N", help="forward and backward passes")
    command.flag("phase", group=CAFFES, choices=("TRAIN", "TEST"), default="TRAIN")
    command.flag("profile", metavar="FILE.json", help="write the times for train's --compute replay:FILE.json")
    add_net_flags(command)
    add_instances(command)
    command.add_caffes(CAFFE)


def _time(arguments: argparse.Namespace) -> int:
    return on_devices(lambda world, settings: _measure(world, arguments, settings), arguments)


def _measure(world: World, a: argparse.Namespace, settings: Settings) -> int:
    team = open_team(world, settings.instances)
    nets = open_nets(world, team, a, settings.compute, TRAIN if a.phase == "TRAIN" else TEST)
    log.info("*** Benchmark begins ***")
    log.info("Testing for %d iterations.", a.iterations)
    each = [[i] for i in range(team.size)]
    times = run_each(nets, team.crew, each, lambda net, _: benchmark.measure(net, a.iterations))
    kernels = watch(nets[0], min(a.iterations, WATCHED)) if nets[0].engine.in_host_memory else []
    for line in benchmark.lines(nets[0], times[0], a.iterations, kernels):
        log.info("%s", line)
    if team.crew:
        log.info("%s", benchmark.joint_line(nets[0], times))
    if a.profile:
        world.on_root(lambda: replay.profile(nets[0], times[0]).save(a.profile))
    log.info("*** Benchmark ends ***")
    close(team, nets)
    return 0
