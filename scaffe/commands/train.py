"""scaffe train."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from scaffe.commands.gflags import CAFFE, Parser
from scaffe.commands.parser import CAFFES, add_command, add_net_flags, add_settings
from scaffe.commands.running import log_device, on_devices, stages
from scaffe.compute import AUTO, Compute
from scaffe.errors import ScaffeError
from scaffe.files.outputs import check_net, check_run, check_snapshots, net_files, replaced_by_snapshots
from scaffe.files.weights import listed
from scaffe.monitor.log import log
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.proto.files import read_solver
from scaffe.training.presets import PRESETS
from scaffe.training.settings import Settings, titles
from scaffe.training.signals import REQUEUE_EXIT_CODE, Signals
from scaffe.training.solver import Solver

RANK = 10
EFFECTS = ("stop", "snapshot", "none")


def add(top: Parser) -> None:
    """Add `train`."""
    command = add_command(top, "train", _train, "Train the net of a solver file on all ranks.")
    command.flag("solver", group=CAFFES, required=True, metavar="FILE", help="solver prototxt")
    text = "state to continue from; auto: the newest, if any"
    command.flag("snapshot", group=CAFFES, metavar="FILE|auto", help=text)
    command.flag("weights", group=CAFFES, metavar="A,B", help=".caffemodel files to start from")
    for name, default in (("sigint", "stop"), ("sighup", "snapshot")):
        text = f"action at the signal {name.upper()} (default: {default})"
        command.flag(f"{name}-effect", group=CAFFES, rare=True, choices=EFFECTS, default=default, help=text)
    add_net_flags(command)
    text = "GPU ids, as Caffe's python/train.py has them: a rank for each"
    command.flag("gpus", group=CAFFES, rare=True, nargs="+", type=_gpu, metavar="ID", help=text)
    text = "accepted as of python/train.py; --timeline has these times"
    command.flag("timing", group=CAFFES, rare=True, action="store_true", help=text)
    text = f"a paper's choices: {', '.join(PRESETS)}"
    command.flag("preset", group=titles()[Run], metavar="NAME", choices=tuple(PRESETS), help=text)
    text = "TOML file of settings; a flag has precedence"
    command.flag("run-config", group=titles()[Run], metavar="FILE", help=text)
    for record in titles():
        if record is not Compute:  # which all nets have
            add_settings(command, record)
    command.add_caffes(CAFFE)


def _gpu(text: str) -> str:
    """Return an id of --gpus, a whole number."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of a GPU, got '{text}'")
    return text


def _train(arguments: argparse.Namespace) -> int:
    if arguments.gpus and arguments.gpu is None:
        arguments.gpu = ",".join(arguments.gpus)
    return on_devices(lambda world, settings: _with_signals(world, arguments, settings), arguments)


def _with_signals(world: World, a: argparse.Namespace, settings: Settings) -> int:
    with Signals(a.sigint_effect, a.sighup_effect) as signals:  # once MPI is open: Open MPI takes SIGHUP for itself
        return _solve(world, a, settings, signals)


def _solve(world: World, a: argparse.Namespace, settings: Settings, signals: Signals) -> int:
    param, weights = world.together(lambda: _read(a))
    world.on_root(lambda: _check_outputs(a, settings, param, weights))
    _note_train_py(world, a)
    if a.preset:
        log.info("Preset %s: %s", a.preset, PRESETS[a.preset])
    compute = settings.compute
    if param.solver_mode == param.CPU and compute.device == AUTO and a.gpu is None:
        world.gpu, compute = None, replace(compute, device="cpu")
    log_device(world.gpu, compute.device, param.solver_mode == param.GPU)
    solver = Solver(param, world=world, **vars(replace(settings, compute=compute)))
    solver.asked = signals.take
    try:
        with _timeline_kept(solver):
            _run_through(solver, a, weights)
    finally:
        solver.checkpoints.close()  # what is under way is written while no other job may write there
        solver.monitor.close()
    solver.close()
    return REQUEUE_EXIT_CODE if solver.stopped == "requeue" else 0


def _check_outputs(a: argparse.Namespace, settings: Settings, param: SolverParameter, weights: Sequence[str]) -> None:
    """Raise ScaffeError if a file that training writes would replace one that it reads, or another tool's."""
    nets = [*filter(None, (param.net, param.train_net)), *param.test_net]
    state = a.snapshot if a.snapshot != "auto" else None
    inputs = [a.solver, *weights, state, a.run_config, settings.compute.profile, *net_files(nets)]
    outputs = {"timeline": settings.watching.timeline, "metrics": settings.watching.metrics}
    check_run(inputs, settings.compute.plan_file, **outputs)
    outputs["plan"] = settings.compute.plan_file
    check_snapshots(param.snapshot_prefix, **outputs)
    for net in nets:
        check_net(net, inputs, **outputs)
    for path in replaced_by_snapshots(param, weights):
        log.warning("%s, which this training begins with, will be replaced by a snapshot of its own", path)


def _read(a: argparse.Namespace) -> tuple[SolverParameter, list[str]]:
    """Return the solver's fields, and the files of weights."""
    param = _solver_param(a)
    return param, _weights(a, param)


def _weights(a: argparse.Namespace, param: SolverParameter) -> list[str]:
    """Return the files of --weights, else those of the solver file."""
    return [path for text in ([a.weights] if a.weights else param.weights) for path in listed(text)]


def _note_train_py(world: World, a: argparse.Namespace) -> None:
    """Log what flags of Caffe's python/train.py mean here where that differs."""
    if a.gpus and len(a.gpus) > world.size:
        text = "--gpus names %d GPUs for %d rank(s), each of which has one: start %d ranks with mpirun"
        log.warning(text, len(a.gpus), world.size, len(a.gpus))
    if a.timing:
        log.info("--timing: --timeline FILE writes the times of layers and messages, scaffe timeline FILE shows them")


def _run_through(solver: Solver, a: argparse.Namespace, weights: Sequence[str]) -> None:
    if weights:
        solver.copy_weights(weights)
    solver.solve(a.snapshot)


@contextmanager
def _timeline_kept(solver: Solver) -> Iterator[None]:
    """Write the timeline also where training fails, if all ranks have failed alike: they all must be there."""
    try:
        yield
    except Exception as error:
        if solver.world.is_alike(error):
            try:
                solver.write_timeline()
            except ScaffeError as failure:
                log.error("%s", failure)
        raise


def _solver_param(a: argparse.Namespace) -> SolverParameter:
    """Return the fields of the solver file, with the level and the stages of the flags."""
    if a.snapshot and a.weights and a.snapshot != "auto":
        raise ScaffeError("give --snapshot to go on with a run, or --weights to fine-tune, not both")
    param = read_solver(a.solver)
    if a.level is not None:
        param.train_state.level = a.level
    param.train_state.stage.extend(stages(a))
    return param
