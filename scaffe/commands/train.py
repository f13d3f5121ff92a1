"""scaffe train."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

from scaffe.commands.gflags import CAFFE
from scaffe.commands.parser import (
    add_command,
    add_compute_flags,
    add_reader_flags,
    add_run_flags,
    add_stall_flags,
    reader_settings,
)
from scaffe.commands.running import on_all_ranks, stages, tell_device
from scaffe.errors import ScaffeError
from scaffe.monitor.log import log
from scaffe.parallel.run import Run, over, read_run
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.proto.files import read_solver
from scaffe.timeline.timeline import LIMIT
from scaffe.training.signals import REQUEUE_EXIT_CODE, Signals
from scaffe.training.solver import SCALINGS, Solver

EFFECTS = ("stop", "snapshot", "none")


def add(commands) -> None:
    """Add `train`."""
    command = add_command(commands, "train", _train, "Train the net of a solver file on all ranks.")
    command.flag("solver", required=True, metavar="FILE", help="solver prototxt")
    command.flag("snapshot", metavar="FILE|auto", help="state to go on from; auto: the newest complete one, if any")
    command.flag("weights", metavar="A,B", help=".caffemodel files, binary or HDF5, to start from")
    command.flag("sigint-effect", choices=EFFECTS, default="stop")
    command.flag("sighup-effect", choices=EFFECTS, default="snapshot")
    command.flag("scal", choices=SCALINGS, default="strong", help="do ranks divide the batch, or each take it?")
    command.flag("keep-snapshots", type=int, default=0, metavar="N", help="remove all but the newest N (0: keep all)")
    text = f"write what each rank's threads did when, for Perfetto: the last {LIMIT} spans a rank, fewer if many ranks"
    command.flag("timeline", metavar="FILE.json", help=text)
    add_stall_flags(command)
    add_compute_flags(command)
    add_run_flags(command)
    add_reader_flags(command)
    command.add_caffes(CAFFE)


def _train(arguments: argparse.Namespace) -> int:
    return on_all_ranks(lambda world: _with_signals(world, arguments), arguments)


def _with_signals(world: World, a: argparse.Namespace) -> int:
    with Signals(a.sigint_effect, a.sighup_effect) as signals:  # once MPI is open: Open MPI takes SIGHUP for itself
        return _solve(world, a, signals)


def _solve(world: World, a: argparse.Namespace, signals: Signals) -> int:
    param = world.together(lambda: _solver_param(a))
    if param.solver_mode == param.CPU and a.device == "auto" and a.gpu is None:
        world.gpu, a.device = None, "cpu"
    tell_device(world.gpu, a, param.solver_mode == param.GPU)
    solver = Solver(
        param, world=world, scaling=a.scal, engine=a.engine, keep_snapshots=a.keep_snapshots,
        allow_python_layers=a.allow_python_layers, threads=a.threads, compute=a.compute, plan=a.plan,
        deterministic=a.deterministic, workspace_bytes=a.workspace_bytes, graphs=a.graphs,
        run=world.together(lambda: _run(a)), reading=world.together(lambda: reader_settings(a)), timeline=a.timeline,
        stall_seconds=a.stall_seconds, stall_abort=a.stall_abort, asked=signals.take,
    )  # fmt: skip
    try:
        with _timeline_kept(solver):
            _run_through(solver, a)
    finally:
        solver.lock.release()
    solver.close()
    return REQUEUE_EXIT_CODE if solver.stopped == "requeue" else 0


def _run_through(solver: Solver, a: argparse.Namespace) -> None:
    if weights := a.weights.split(",") if a.weights else list(solver.param.weights):
        solver.copy_weights(weights)
    solver.solve(a.snapshot)


@contextmanager
def _timeline_kept(solver: Solver) -> Iterator[None]:
    """Have the timeline written also where training fails, if all ranks know: else some would wait for others."""
    try:
        yield
    except Exception as error:
        if solver.world.is_alike(error):
            try:
                solver.write_timeline()
            except ScaffeError as failure:
                log.error("%s", failure)
        raise


def _run(a: argparse.Namespace) -> Run:
    """Return the run's settings: the file's, and over them the flags'."""
    given = read_run(a.run_config) if a.run_config else Run()
    return over(given, **{field.name: getattr(a, field.name) for field in fields(Run)})


def _solver_param(a: argparse.Namespace) -> SolverParameter:
    """Return the solver file's fields, with what the flags say."""
    if a.snapshot and a.weights and a.snapshot != "auto":
        raise ScaffeError("give --snapshot to go on with a run, or --weights to fine-tune, not both")
    param = read_solver(a.solver)
    if a.level is not None:
        param.train_state.level = a.level
    param.train_state.stage.extend(stages(a))
    return param
