"""What commands have in common: on which ranks they run, on which device, with which net."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import count

from scaffe import weights as weight_files
from scaffe.choices import Choices
from scaffe.context import Context
from scaffe.errors import LaunchError, ScaffeError
from scaffe.monitor import log as logs
from scaffe.monitor.log import log
from scaffe.net import Net
from scaffe.parallel.world import World, launcher_rank, open_world


def alone(work: Callable[[], object]) -> int:
    """Do a tool's work, which needs no MPI, on the first rank if there are several; return its exit code."""
    if launcher_rank() == 0:
        logs.start()
        work()
    return 0


def on_all_ranks(run: Callable[[World], int]) -> int:
    """Run a command on every rank, and let no rank wait for one that failed."""
    world = open_world()
    try:
        return run(world)
    except KeyboardInterrupt:
        world.comm.Abort(130)
    except BaseException as error:
        return world.fail(error)
    return 0


def choose_device(a: argparse.Namespace, wanted: bool = False) -> None:
    """Log where the layers compute. Raise LaunchError if the user named a GPU."""
    if a.gpu is not None or a.device == "cuda":
        raise LaunchError("a GPU was asked for, but this scaffe computes on CPUs only; use --device cpu")
    if wanted and a.device == "auto":
        log.info("The solver asks for a GPU: there is none that scaffe can use.")
    log.info("Use CPU.")


def stages(a: argparse.Namespace) -> list[str]:
    """Return the stages of --stage."""
    return list(filter(None, a.stage.split(",")))


def open_net(world: World, a: argparse.Namespace, phase: int, numbers: Callable[[], Iterator[int]] = count) -> Net:
    """Return the net of --model with --weights, if any, on all ranks. Collective.

    `numbers` are the batches that this rank's data layers read. Raise ScaffeError where a flag makes no sense.
    """
    context = Context(phase, batch_numbers=numbers, file_mark=world.file_mark)
    net = world.together(lambda: _net(world, a, context))
    world.agree({"the net": str(net.param)})
    if a.weights:
        world.on_root(lambda: weight_files.load_all(net, a.weights.split(",")))
        world.comm.Bcast(net.packed.data, world.root)
    choices = world.on_root(lambda: Choices(a.plan))
    context.choices.taken = world.on_root(lambda: choices.time([net]))
    return net


def _net(world: World, a: argparse.Namespace, context: Context) -> Net:
    if a.iterations < 1:
        raise ScaffeError(f"--iterations must be 1 or more, got {a.iterations}")
    choose_device(a)
    if a.threads:
        world.take_threads(a.threads)
    context.threads, context.compute, context.allow_python_layers = world.threads, a.compute, a.allow_python_layers
    return Net(a.model, context=context, engine=a.engine, level=a.level, stages=stages(a))
