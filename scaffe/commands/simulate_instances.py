"""scaffe simulate-instances."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import fields

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.errors import ScaffeError
from scaffe.files.outputs import check_output
from scaffe.parallel.instances.gathers.gather import find_gather
from scaffe.parallel.instances.simulation import picture, report
from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.predict import (
    LATE,
    Predicted,
    check_loads,
    delays_for,
    over_cores,
    over_delays,
    over_sizes,
)
from scaffe.parallel.instances.simulation.training import Division, Passes
from scaffe.proto.kinds import PICTURE
from scaffe.training.costs import read_passes

RANK = 14
DEFAULT = Machine()
MOST = 1_000_000_000  # images, iterations or launch groups
GATHERS = "server,slices,tree:2"


def add(top: Parser) -> None:
    """Add `simulate-instances`."""
    text = "Predict the images per second of instances on many cores, from one core's layer times."
    command = add_command(top, "simulate-instances", lambda a: alone(lambda: _print(a)), text)
    command.add_argument("profile", metavar="PROFILE.json", help="what scaffe time --threads 1 --profile wrote")
    command.flag("threaded", metavar="FILE.json", help="what --threads 2 wrote: how far threads divide each layer")
    command.flag("model", metavar="FILE", help="net prototxt, for a profile without operations and bytes")
    command.flag("inference", action="store_true", help="forward passes alone")
    command.flag("batch", type=int, metavar="N", help="images of each instance [the profile's]")
    command.flag("total", type=int, metavar="N", help="images of all instances together, in place of --batch")
    command.flag("gathers", default=GATHERS, metavar="A,B", help=f"gathers to compare [{GATHERS}]")
    command.flag("launch-groups", type=int, default=4, metavar="N", help="groups that start with delays [4]")
    command.flag("launch-delays", metavar="T,T", help="seconds [until 1, 3 and 10 %% of an iteration]")
    command.flag("iterations", type=int, default=1, metavar="N", help="iterations to simulate [1]")
    command.flag("plot", metavar="OUT.png", help="draw scaling and bandwidth (extra: plot)")
    _add_machine(command)


def _add_machine(command: Parser) -> None:
    def flag(name: str, kind: type, metavar: str, text: str) -> None:
        command.flag(name, group="the machine", type=kind, metavar=metavar, help=text)

    flag("cores", int, "N", f"cores of all domains [{DEFAULT.cores}]")
    flag("domains", int, "N", f"NUMA domains [{DEFAULT.domains}]")
    flag("bandwidth", float, "B", f"bytes/s of each domain's memory [{DEFAULT.bandwidth:g}]")
    flag("link", float, "B", "bytes/s of an instance from the other domains that it covers [inf]")
    flag("barrier", float, "T", f"seconds of a barrier after a layer [{DEFAULT.barrier:g}]")
    flag("core-gflops", float, "G", "1e9 operations/s of a core in compute-intensive layers [measured]")
    flag("core-bandwidth", float, "B", "bytes/s of a core in the other layers and in sums [measured]")
    command.flag("unfused", group="the machine", action="store_true", help="no kernel computes several layers")
    flag("jitter", float, "S", f"relative deviation of a thread's time for a layer [{DEFAULT.jitter:g}]")


def _print(a: argparse.Namespace) -> None:
    machine = Machine(**{f.name: given for f in fields(Machine) if (given := getattr(a, f.name)) is not None})
    gathers, delays = _gathers(a.gathers), _delays(a.launch_delays)
    for name in ("batch", "total", "iterations", "launch_groups"):
        if (given := getattr(a, name)) is not None and not 1 <= given <= MOST:
            raise ScaffeError(f"--{name.replace('_', '-')} must be 1 to {MOST}, got {given}")
    if a.plot:
        picture.check(a.plot)
        check_output("--plot", a.plot, [a.profile, a.threaded, a.model], [PICTURE])
    passes = read_passes(a.profile, a.threaded, a.model, a.inference)
    division = _division(a, passes)
    check_loads(passes, machine, division, len(gathers), a.launch_groups, len(delays) or len(LATE), a.iterations)
    _show(report.head_lines(passes, machine))
    rows = list(over_sizes(passes, machine, division, gathers, a.iterations))
    if not rows:
        raise ScaffeError(f"--total {a.total}: fewer images than instances for every size")
    _show(report.size_lines(rows, gathers), "Images/s by gather")
    found = [report.best_of(row) for row in rows]
    best = report.chosen(found, _try_delays(a, passes, machine, found, delays))
    scaling = list(over_cores(passes, machine, found[0].division, a.iterations))
    _show(report.core_lines(scaling), "Images/s of an instance on each core, and of one instance on all")
    print(report.best_line(best))
    if a.plot:
        picture.plot(scaling, best, machine, a.plot)


def _try_delays(
    a: argparse.Namespace, passes: Passes, machine: Machine, found: list[Predicted], delays: list[float]
) -> list[Predicted]:
    """Print what launch delays give, and return the predictions."""
    several = [one for one in found if machine.domain_cores // one.division.x > 1]
    if a.launch_groups == 1 or not several:
        return []
    delays = delays or delays_for(found[0].seconds, a.launch_groups)
    rows = [over_delays(passes, machine, one, a.launch_groups, delays, a.iterations) for one in several]
    _show(report.delay_lines(rows), f"Images/s by launch delay, {a.launch_groups} groups")
    return [one for row in rows for one in row]


def _show(lines: Iterable[str], title: str = "") -> None:
    if title:
        print(f"\n{title}")
    for line in lines:
        print(line)


def _division(a: argparse.Namespace, passes: Passes) -> Division:
    if a.batch and a.total:
        raise ScaffeError("--batch and --total say two things; give one of them")
    return Division(1, a.total or a.batch or passes.batch, divided=bool(a.total))


def _gathers(text: str) -> list[str]:
    for name in text.split(","):
        find_gather(name)
    return text.split(",")


def _delays(text: str | None) -> list[float]:
    try:
        delays = [float(word) for word in text.split(",")] if text else []
    except ValueError:
        delays = [-1.0]
    if any(not 0 <= delay < 3600 for delay in delays):
        raise ScaffeError(f"--launch-delays must be seconds such as 0.001,0.01; got '{text}'")
    return delays
