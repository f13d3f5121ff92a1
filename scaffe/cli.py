"""The command line: scaffe train, test and the tools around them; Caffe's spelling of its flags works too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import readers
from scaffe import __version__, benchmark
from scaffe import weights as weight_files
from scaffe.choices import FIXED, Choices
from scaffe.context import TEST, TRAIN, Context
from scaffe.engines import COMPUTE, ENGINES
from scaffe.errors import LaunchError, ScaffeError
from scaffe.models.command import add_models
from scaffe.monitor import log as logs
from scaffe.monitor.log import log
from scaffe.net import Net
from scaffe.parallel.evaluate import Batch, batch_numbers, means, run_batches
from scaffe.parallel.world import USER_ERRORS, World, launcher_rank, open_world
from scaffe.proto import SolverParameter
from scaffe.proto.files import read_solver
from scaffe.proto.upgrade_files import upgrade_net_file, upgrade_solver_file
from scaffe.signals import REQUEUE_EXIT_CODE, Signals
from scaffe.solver import SCALINGS, Solver

EFFECTS = ("stop", "snapshot", "none")


class Parser(argparse.ArgumentParser):
    """Report a wrong command line in one line, and once, however many ranks there are."""

    def error(self, message: str):
        if launcher_rank() == 0:
            print(f"scaffe: {message}; see {self.prog} --help", file=sys.stderr)
        self.exit(2)

    def flag(self, name: str, **options) -> None:
        """Add --name, also as -name and with underscores for hyphens: Caffe's own spelling."""
        names = dict.fromkeys(dash + spelling for dash in ("--", "-") for spelling in (name, name.replace("-", "_")))
        self.add_argument(*names, **options)


def parser() -> Parser:
    """Return the parser of the whole command line."""
    top = Parser(prog="scaffe", description="Train Caffe nets over MPI.")
    top.add_argument("--version", action="version", version=f"scaffe {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    making = (_add_digits, _add_imageset, _add_mean, _add_upgrade_net, _add_upgrade_solver, add_models)
    for add in (_add_train, _add_test, _add_time, *making):
        add(commands)
    return top


def _command(
    commands, name: str, run: Callable[[argparse.Namespace], int], text: str, caffes: Sequence[str] = ()
) -> Parser:
    """Add a command, by its name, by that with underscores and by those of Caffe's tools."""
    aliases = [name.replace("-", "_")] if "-" in name else []
    command = commands.add_parser(name, aliases=[*aliases, *caffes], help=text, description=text, allow_abbrev=False)
    command.set_defaults(run=run)
    return command


def _add_compute_flags(command: Parser) -> None:
    command.flag("gpu", metavar="IDS", help="GPU ids or 'all', as Caffe's; the same as --device cuda")
    command.flag("device", choices=("auto", "cpu", "cuda"), default="auto", help="auto takes a GPU if there is one")
    command.flag("allow-python-layers", action="store_true", help="let the net's Python layers run code")
    command.flag("engine", choices=ENGINES, default="auto", help="which forms of the layers compute")
    command.flag("compute", choices=COMPUTE, default="float32", help="what convolutions and inner products multiply")
    command.flag("plan", default=FIXED, metavar="fixed|timed|FILE", help="how the engine's ways to compute are chosen")
    command.flag("threads", type=int, default=0, metavar="N", help="of each rank; 0: OMP_NUM_THREADS, or its cores")
    command.flag("level", type=int, default=0, help="level of the net's state")
    command.flag("stage", default="", metavar="A,B", help="stages of the net's state")


def _add_train(commands) -> None:
    command = _command(commands, "train", _train, "Train the net of a solver file on all ranks.")
    command.flag("solver", required=True, metavar="FILE", help="solver prototxt")
    command.flag("snapshot", metavar="FILE|auto", help="state to go on from; auto: the newest complete one, if any")
    command.flag("weights", metavar="A,B", help=".caffemodel files, binary or HDF5, to start from")
    command.flag("sigint-effect", choices=EFFECTS, default="stop")
    command.flag("sighup-effect", choices=EFFECTS, default="snapshot")
    command.flag("scal", choices=SCALINGS, default="strong", help="do ranks divide the batch, or each take it?")
    command.flag("keep-snapshots", type=int, default=0, metavar="N", help="remove all but the newest N (0: keep all)")
    _add_compute_flags(command)


def _add_test(commands) -> None:
    command = _command(commands, "test", _test, "Score a net on its test data, divided over all ranks.")
    command.flag("model", required=True, metavar="FILE", help="net prototxt")
    command.flag("weights", required=True, metavar="A,B", help=".caffemodel files")
    command.flag("iterations", type=int, default=50, metavar="N", help="batches to run")
    _add_compute_flags(command)


def _add_time(commands) -> None:
    command = _command(commands, "time", _time, "Time each layer of a net, forward and backward.")
    command.flag("model", required=True, metavar="FILE", help="net prototxt")
    command.flag("weights", metavar="A,B", help=".caffemodel files; without them the fillers'")
    command.flag("iterations", type=int, default=50, metavar="N", help="forward and backward passes")
    command.flag("phase", choices=("TRAIN", "TEST"), default="TRAIN")
    _add_compute_flags(command)


def _add_digits(commands) -> None:
    text = "Make LMDBs of scikit-learn's 1,797 handwritten digits, enlarged to 28x28."
    command = _command(commands, "convert-digits", lambda a: _convert(lambda: readers.convert_digits(a.out_dir)), text)
    command.add_argument("out_dir", metavar="OUT_DIR")


def _add_imageset(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return _convert(
            lambda: readers.convert_imageset(
                a.root, a.list, a.db, gray=a.gray, shuffle=a.shuffle, seed=a.seed, encoded=a.encoded,
                resize_width=a.resize_width, resize_height=a.resize_height,
            )
        )  # fmt: skip

    text = "Make an LMDB of the images that a list of 'FILE LABEL' lines names."
    command = _command(commands, "convert-imageset", run, text)
    command.add_argument("root", metavar="ROOT", help="folder that the list's names are in")
    command.add_argument("list", metavar="LIST")
    command.add_argument("db", metavar="DB")
    command.flag("gray", action="store_true", help="store one grey channel")
    command.flag("shuffle", action="store_true", help="store in random order")
    command.flag("seed", type=int, default=0, help="of the random order")
    command.flag("resize-width", type=int, default=0, metavar="N")
    command.flag("resize-height", type=int, default=0, metavar="N")
    command.flag("encoded", action="store_true", help="store the files' own bytes, as JPEG or PNG")


def _add_mean(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return _convert(lambda: readers.compute_image_mean(a.db, a.out))

    command = _command(commands, "compute-image-mean", run, "Write the mean image of an LMDB.")
    command.add_argument("db", metavar="DB")
    command.add_argument("out", metavar="OUT.binaryproto")


def _add_upgrade_net(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return _convert(lambda: upgrade_net_file(a.old, a.new))

    text = "Write a net, text or binary, in the present form of Caffe's prototxt."
    caffes = ["upgrade_net_proto_text", "upgrade_net_proto_binary"]
    command = _command(commands, "upgrade-net", run, text, caffes)
    command.add_argument("old", metavar="IN", help="prototxt or .caffemodel, of any age")
    command.add_argument("new", metavar="OUT", help="binary if its name ends with .caffemodel, text if with .prototxt")


def _add_upgrade_solver(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return _convert(lambda: upgrade_solver_file(a.old, a.new))

    text = "Write a solver in the present form of Caffe's prototxt."
    command = _command(commands, "upgrade-solver", run, text, ["upgrade_solver_proto_text"])
    command.add_argument("old", metavar="IN")
    command.add_argument("new", metavar="OUT")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, 2 for a user's error, 75 to be requeued, 130 after ^C, 1 for a defect."""
    arguments = parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except USER_ERRORS as error:
        if launcher_rank() == 0:
            print(f"scaffe: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _convert(work: Callable[[], object]) -> int:
    logs.start()
    work()
    return 0


def _on_all_ranks(run: Callable[[World], int]) -> int:
    """Run a command on every rank, and let no rank wait for one that failed."""
    world = open_world()
    try:
        return run(world)
    except KeyboardInterrupt:
        world.comm.Abort(130)
    except BaseException as error:
        return world.fail(error)
    return 0


def _train(arguments: argparse.Namespace) -> int:
    return _on_all_ranks(lambda world: _train_with_signals(world, arguments))


def _train_with_signals(world: World, a: argparse.Namespace) -> int:
    with Signals(a.sigint_effect, a.sighup_effect) as signals:  # once MPI is open: Open MPI takes SIGHUP for itself
        return _train_on(world, a, signals)


def _train_on(world: World, a: argparse.Namespace, signals: Signals) -> int:
    param = world.together(lambda: _solver_param(a))
    solver = Solver(
        param, world=world, scaling=a.scal, engine=a.engine, keep_snapshots=a.keep_snapshots,
        allow_python_layers=a.allow_python_layers, threads=a.threads, compute=a.compute, plan=a.plan,
        asked=signals.take,
    )  # fmt: skip
    if weights := a.weights.split(",") if a.weights else list(param.weights):
        solver.copy_weights(weights)
    solver.solve(a.snapshot)
    solver.close()
    return REQUEUE_EXIT_CODE if solver.stopped == "requeue" else 0


def _solver_param(a: argparse.Namespace) -> SolverParameter:
    """Return the solver file's fields, with what the flags say."""
    if a.snapshot and a.weights and a.snapshot != "auto":
        raise ScaffeError("give --snapshot to go on with a run, or --weights to fine-tune, not both")
    param = read_solver(a.solver)
    _choose_device(a, param.solver_mode == param.GPU)
    _set_state(param.train_state, a)
    return param


def _set_state(state, a: argparse.Namespace) -> None:
    if a.level:
        state.level = a.level
    state.stage.extend(_stages(a))


def _stages(a: argparse.Namespace) -> list[str]:
    return list(filter(None, a.stage.split(",")))


def _choose_device(a: argparse.Namespace, wanted: bool = False) -> None:
    """Log where the layers compute. Raise LaunchError if the user named a GPU."""
    if a.gpu is not None or a.device == "cuda":
        raise LaunchError("a GPU was asked for, but this scaffe computes on CPUs only; use --device cpu")
    if wanted and a.device == "auto":
        log.info("The solver asks for a GPU: there is none that scaffe can use.")
    log.info("Use CPU.")


def _test(arguments: argparse.Namespace) -> int:
    return _on_all_ranks(lambda world: _test_on(world, arguments))


def _test_on(world: World, a: argparse.Namespace) -> int:
    net = _open_net(world, a, TEST, batch_numbers(world, a.iterations))
    log.info("Running for %d iterations.", a.iterations)
    _report(net, run_batches(net, a.iterations, world))
    net.close()
    return 0


def _open_net(world: World, a: argparse.Namespace, phase: int, numbers: Callable[[], Iterator[int]] = count) -> Net:
    """Return the net of --model with --weights, if any, on all ranks, as the flags want it computed. Collective."""
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
    """Return the net of --model. Raise ScaffeError where a flag makes no sense."""
    if a.iterations < 1:
        raise ScaffeError(f"--iterations must be 1 or more, got {a.iterations}")
    _choose_device(a)
    if a.threads:
        world.take_threads(a.threads)
    context.threads, context.compute, context.allow_python_layers = world.threads, a.compute, a.allow_python_layers
    return Net(a.model, context=context, engine=a.engine, level=a.level, stages=_stages(a))


def _time(arguments: argparse.Namespace) -> int:
    return _on_all_ranks(lambda world: _time_on(world, arguments))


def _time_on(world: World, a: argparse.Namespace) -> int:
    net = _open_net(world, a, TRAIN if a.phase == "TRAIN" else TEST)
    log.info("*** Benchmark begins ***")
    log.info("Testing for %d iterations.", a.iterations)
    for line in benchmark.lines(net, benchmark.measure(net, a.iterations), a.iterations):
        log.info("%s", line)
    log.info("*** Benchmark ends ***")
    net.close()
    return 0


def _report(net: Net, batches: list[Batch]) -> None:
    """Log the scores as `caffe test` does."""
    for batch in batches:
        for line in logs.output_lines(batch.outputs, {}):
            log.info("Batch %d, %s", batch.number, line)
    mean = means(batches)
    log.info("Loss: %.6g", mean.loss)
    for line in logs.output_lines(mean.outputs, net.loss_weights()):
        log.info("%s", line)
