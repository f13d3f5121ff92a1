"""Running a command: its ranks, its settings, its device, its net."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import TypeVar

from scaffe.choices import Choices
from scaffe.compute import AUTO, Compute
from scaffe.context import Context
from scaffe.devices import gpu
from scaffe.errors import ScaffeError
from scaffe.files import weights as weight_files
from scaffe.monitor import log as logs
from scaffe.monitor.log import log
from scaffe.net import Net
from scaffe.parallel.world import USER_ERRORS, World, launcher_rank, open_world
from scaffe.training import presets
from scaffe.training.settings import Settings, read_settings

T = TypeVar("T")
OWN = "gpu", "threads"  # flags that a rank may have of its own
FILES = (
    "solver",
    "model",
    "snapshot",
    "weights",
    "run_config",
    "timeline",
    "plan",
    "out",
)  # may lie elsewhere on another node


def alone(work: Callable[[], object]) -> int:
    """Do a tool's work, which needs no MPI, on the first rank alone; return its exit code."""
    if launcher_rank() == 0:
        logs.start()
        work()
    return 0


def on_all_ranks(run: Callable[[World], int]) -> int:
    """Run a command on every rank; return its exit code. No rank waits for a failed one."""
    world = open_world()
    try:
        return run(world)
    except KeyboardInterrupt:
        world.comm.Abort(130)
    except BaseException as error:
        return world.fail(error)
    return 0


def on_devices(run: Callable[[World, Settings], int], a: argparse.Namespace) -> int:
    """Run a command on every rank with its settings, and with the GPU that --device and --gpu ask for.

    The GPU is chosen before MPI starts; an error of that choice is raised when MPI can report it.
    """
    chosen = _outcome(lambda: _chosen(a))

    def start(world: World) -> int:
        agree_on_flags(world, a)
        settings, device = world.together(chosen)
        world.take_gpu(device)
        return run(world, settings)

    return on_all_ranks(start)


def agree_on_flags(world: World, a: argparse.Namespace) -> None:
    """Raise DisagreementError on all ranks unless they have the same flags, but for those in OWN. Collective.

    Of FILES it counts whether they are given: what ranks must share of their contents is agreed on once they are read.
    """
    flags = {name: value for name, value in vars(a).items() if name not in OWN and not callable(value)}
    texts = {name: "given" if value and name in FILES else str(value) for name, value in flags.items()}
    world.agree({f"--{name.replace('_', '-')}": text for name, text in texts.items()})


def _chosen(a: argparse.Namespace) -> tuple[Settings, gpu.Gpu | None]:
    given = settings(a)
    return given, gpu.choose(given.compute.device, a.gpu)


def settings(a: argparse.Namespace) -> Settings:
    """Return the settings of the flags, else of the file --run-config, else of --preset, if the command takes these."""
    preset, path = getattr(a, "preset", None), getattr(a, "run_config", None)
    chosen = presets.find(preset).settings if preset else Settings()
    return (read_settings(path, chosen) if path else chosen).with_flags(vars(a))


def _outcome(work: Callable[[], T]) -> Callable[[], T]:
    """Return a function that gives the work's result, or raises its error, when it is called."""
    try:
        result = work()
    except USER_ERRORS as error:
        failure = error  # outlives the name of an except clause

        def fail() -> T:
            raise failure

        return fail
    return lambda: result


def log_device(chosen: gpu.Gpu | None, device: str, wanted: bool = False) -> None:
    """Log where the layers compute, `device` being the setting; `wanted`: the solver file asks for a GPU."""
    if device == AUTO and chosen is None:
        if launcher_rank() == 0 and (why := gpu.left_unused()):
            log.warning("This machine has a GPU, which is not used: %s; --device cpu says that none is wanted.", why)
        elif wanted:
            log.info("The solver asks for a GPU: there is none that scaffe can use.")
    log.info("Use %s.", chosen or "CPU")


def stages(a: argparse.Namespace) -> list[str]:
    """Return the stages of --stage."""
    return list(filter(None, a.stage.split(",")))


def open_net(
    world: World,
    a: argparse.Namespace,
    compute: Compute,
    phase: int,
    numbers: Callable[[], Iterator[int]] = count,
) -> Net:
    """Return the net of --model with --weights, if any, on all ranks. Collective.

    `numbers` are the batches that this rank's data layers read. Raise ScaffeError where a flag has a wrong value.
    """
    context = Context(phase, batch_numbers=numbers, file_mark=world.file_mark)
    net = world.together(lambda: _net(world, a, compute, context))
    world.agree({"the net": str(net.param)})
    if a.weights:
        world.on_root(lambda: weight_files.load_all(net, a.weights.split(",")))
        values = net.packed.host_data()
        world.comm.Bcast(values, world.root)
        net.packed.set_data(values)
    choices = world.on_root(lambda: Choices(compute.plan))
    context.choices.taken = world.on_root(lambda: choices.time([net]))
    return net


def _net(world: World, a: argparse.Namespace, compute: Compute, context: Context) -> Net:
    if a.iterations < 1:
        raise ScaffeError(f"--iterations must be 1 or more, got {a.iterations}")
    log_device(world.gpu, compute.device)
    if compute.threads:
        world.take_threads(compute.threads)
    context.compute = replace(compute, threads=world.threads)
    return Net(a.model, context=context, gpu=world.gpu, level=a.level, stages=stages(a))
