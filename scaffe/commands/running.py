"""Running a command: its ranks, its settings, its device, its net."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TypeVar

from scaffe import engines
from scaffe.compute import AUTO, Compute
from scaffe.context import Context
from scaffe.devices import gpu
from scaffe.devices.choices import Choices
from scaffe.errors import ScaffeError
from scaffe.files import weights as weight_files
from scaffe.files.outputs import check_net, check_run, net_files
from scaffe.monitor import log as logs
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.parallel.evaluate import batch_numbers
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.places import place
from scaffe.parallel.instances.shared_parameters import share
from scaffe.parallel.instances.team import Team, on_gpu
from scaffe.parallel.instances.topology import read_topology
from scaffe.parallel.mpi_library import can_shrink
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
    code = 0
    try:
        code = run(world)
    except KeyboardInterrupt:
        world.abort(130)
    except BaseException as error:
        code = world.fail(error)
    if world.lost or world.spares or world.revoked:
        world.leave(code)
    return code


def on_devices(run: Callable[[World, Settings], int], a: argparse.Namespace) -> int:
    """Run a command on every rank with its settings, and with the GPU that --device and --gpu ask for.

    The GPU is chosen before MPI starts; an error of that choice is raised when MPI can report it.
    """
    chosen = _outcome(lambda: _chosen(a))

    def set_up(world: World) -> Settings:
        agree_on_flags(world, a)
        settings, device = world.together(chosen)
        world.take_gpu(device)
        return settings

    def start(world: World) -> int:
        return run(world, world.retried(lambda: set_up(world)) if _shrinks(chosen) else set_up(world))

    return on_all_ranks(start)


def _shrinks(chosen: Callable[[], tuple[Settings, gpu.Gpu | None]]) -> bool:
    """Return whether the set-up goes on without a rank that is lost meanwhile."""
    with suppress(*USER_ERRORS):  # raised in the set-up
        return can_shrink() and chosen()[0].run.shrinks
    return False


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
    found = (read_settings(path, chosen) if path else chosen).with_flags(vars(a))
    if found.compute.allow_python_layers:
        _install_caffe()
    return found


def _install_caffe() -> None:
    """Make `import caffe` give scaffe.pycaffe, for the modules of users' layers, unless another one is installed."""
    from scaffe.pycaffe import names  # here: it has all of pycaffe

    if not names.other_caffe():
        names.install()


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


def open_team(world: World, instances: Instances) -> Team:
    """Return the instances of a command that runs nets forward alone: "auto" is one on each core. Collective."""
    team = Team(world, _counted(instances))
    for one in team.places if team.crew else ():
        log.info("%s", one)
    return team


def open_crew(instances: Instances, chosen: gpu.Gpu | None) -> Crew | None:
    """Return the instances' threads of a command that one rank does without MPI, None for a single instance."""
    if instances.n == "1":
        return None
    places = place(_counted(instances).n, read_topology(), instances.oversubscribe)
    if len(places) > 1 and chosen is not None:
        raise on_gpu(len(places))
    return Crew(places) if len(places) > 1 else None


def _counted(instances: Instances) -> Instances:
    """Return the instances with "auto" replaced: nets that run forward alone need no trial."""
    return replace(instances, n="core") if instances.n == AUTO else instances


def open_nets(
    world: World, team: Team, a: argparse.Namespace, compute: Compute, phase: int, iterations: int = 0
) -> list[Net]:
    """Return the net of --model for each instance, with the parameters of --weights. Collective.

    The nets of a NUMA domain share their parameters. Their data layers read the batches of a test of so many
    iterations, or, for 0, all batches. Raise ScaffeError where a flag has a wrong value.
    """
    world.on_root(lambda: _check_outputs(a, compute))
    world.together(lambda: _prepare(world, team, a, compute))
    nets = world.together(lambda: team.build(lambda i: _net(world, team, a, compute, phase, iterations, i)))
    world.agree({"the net": str(nets[0].param)})
    firsts = share(team.places, nets)
    if a.weights:
        world.on_root(lambda: weight_files.load_all(nets[0], weight_files.listed(a.weights)))
        values = nets[0].packed.host_data()
        world.comm.Bcast(values, world.root)
        for net in firsts:
            net.packed.set_data(values)
    choices = world.on_root(lambda: Choices(compute.plan))
    taken = world.on_root(lambda: choices.time(nets[:1]))
    for net in nets:
        net.context.choices.taken = taken
    return nets


def close(team: Team, nets: Iterable[Net]) -> None:
    """End the threads, and complete the files that layers write."""
    for net in nets:
        net.close()
    team.close()


def _check_outputs(a: argparse.Namespace, compute: Compute) -> None:
    """Raise ScaffeError if a file to write would replace one to read, or another tool's."""
    inputs = [*(a.weights or "").split(","), *net_files([a.model])]
    profile = getattr(a, "profile", None)
    check_run(inputs, compute.plan_file, profile=profile)
    check_net(a.model, inputs, plan=compute.plan_file, profile=profile)


def _prepare(world: World, team: Team, a: argparse.Namespace, compute: Compute) -> None:
    """Check the flags, and set the threads of numpy's BLAS: those of one instance, since each calls it."""
    if a.iterations < 1:
        raise ScaffeError(f"--iterations must be 1 or more, got {a.iterations}")
    log_device(world.gpu, compute.device)
    if compute.threads or team.crew:
        world.take_threads(team.threads(0, compute.threads))


def _net(
    world: World, team: Team, a: argparse.Namespace, compute: Compute, phase: int, iterations: int, instance: int
) -> Net:
    number = team.first + instance
    numbers = batch_numbers(number, team.total, iterations) if iterations else count
    context = Context(phase, batch_numbers=numbers, file_mark=team.file_mark(instance))
    context.compute = replace(compute, threads=team.threads(instance, compute.threads))
    context.forms = team.forms
    engine = engines.create(context.compute, world.gpu)
    return Net(a.model, context=context, engine=engine, level=a.level, stages=stages(a))
