"""What commands have in common: on which ranks they run, on which device, with which net."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from scaffe.context import Context
from scaffe.errors import LaunchError, ScaffeError
from scaffe.monitor import log as logs
from scaffe.monitor.log import log
from scaffe.net import Net
from scaffe.parallel.world import World, open_world


def alone(work: Callable[[], object]) -> int:
    """Do a tool's work, which needs no MPI; return its exit code."""
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


def net_for(a: argparse.Namespace, context: Context) -> Net:
    """Return the net of --model. Raise ScaffeError where a flag makes no sense."""
    if a.iterations < 1:
        raise ScaffeError(f"--iterations must be 1 or more, got {a.iterations}")
    choose_device(a)
    context.allow_python_layers = a.allow_python_layers
    return Net(a.model, context=context, engine=a.engine, level=a.level, stages=stages(a))
