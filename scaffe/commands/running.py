"""What commands have in common: on which ranks they run, on which device, with which net."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

from scaffe.choices import Choices
from scaffe.context import Context
from scaffe.devices import gpu
from scaffe.errors import ScaffeError
from scaffe.files import weights as weight_files
from scaffe.monitor import log as logs
from scaffe.monitor.log import log
from scaffe.net import Net
from scaffe.parallel.world import World, launcher_rank, open_world

T = TypeVar("T")


def alone(work: Callable[[], object]) -> int:
    """Do a tool's work, which needs no MPI, on the first rank if there are several; return its exit code."""
    if launcher_rank() == 0:
        logs.start()
        work()
    return 0


def on_all_ranks(run: Callable[[World], int], a: argparse.Namespace | None = None) -> int:
    """Run a command on every rank, each with the GPU that --device and --gpu ask for; no rank waits for a failed one.

    The GPU is chosen before MPI starts; that it can't be had is told when the ranks can hear it. Commands without these
    flags take none.
    """
    chosen = _outcome(lambda: None if a is None else gpu.choose(a.device, a.gpu))
    world = open_world()
    try:
        world.take_gpu(world.together(chosen))
        return run(world)
    except KeyboardInterrupt:
        world.comm.Abort(130)
    except BaseException as error:
        return world.fail(error)
    return 0


def _outcome(work: Callable[[], T]) -> Callable[[], T]:
    """Return what gives the work's result, or raises its error, when it is called."""
    try:
        result = work()
    except ScaffeError as error:
        failure = error  # outlives the name of an except clause

        def fail() -> T:
            raise failure

        return fail
    return lambda: result


def tell_device(chosen: gpu.Gpu | None, a: argparse.Namespace, wanted: bool = False) -> None:
    """Log where the layers compute; `wanted`: the solver file asks for a GPU."""
    if a.device == "auto" and chosen is None:
        if launcher_rank() == 0 and (why := gpu.left_unused()):
            log.warning("This machine has a GPU, which is not used: %s; --device cpu says that none is wanted.", why)
        elif wanted:
            log.info("The solver asks for a GPU: there is none that scaffe can use.")
    log.info("Use %s.", chosen or "CPU")


def stages(a: argparse.Namespace) -> list[str]:
    """Return the stages of --stage."""
    return list(filter(None, a.stage.split(",")))


def open_net(world: World, a: argparse.Namespace, phase: int, numbers: Callable[[], Iterator[int]] = count) -> Net:
    """Return the net of --model with --weights, if any, on all ranks. Collective.

    `numbers` are the batches that this rank's data layers read. Raise ScaffeError where a flag makes no sense.
    """
    context = Context(phase, batch_numbers=numbers, file_mark=world.file_mark, gpu=world.gpu)
    net = world.together(lambda: _net(world, a, context))
    world.agree({"the net": str(net.param)})
    if a.weights:
        world.on_root(lambda: weight_files.load_all(net, a.weights.split(",")))
        values = net.packed.host_data()
        world.comm.Bcast(values, world.root)
        net.packed.set_data(values)
    choices = world.on_root(lambda: Choices(a.plan))
    context.choices.taken = world.on_root(lambda: choices.time([net]))
    return net


def _net(world: World, a: argparse.Namespace, context: Context) -> Net:
    if a.iterations < 1:
        raise ScaffeError(f"--iterations must be 1 or more, got {a.iterations}")
    tell_device(world.gpu, a)
    if a.threads:
        world.take_threads(a.threads)
    context.graphs = a.graphs
    context.threads, context.compute, context.allow_python_layers = world.threads, a.compute, a.allow_python_layers
    context.deterministic, context.workspace_bytes = a.deterministic, a.workspace_bytes
    return Net(a.model, context=context, engine=a.engine, level=a.level, stages=stages(a))
