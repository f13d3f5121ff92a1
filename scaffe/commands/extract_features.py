"""scaffe extract-features, with the arguments of Caffe's tool."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command, add_instances, add_net_flags
from scaffe.commands.running import close, on_devices, open_nets, open_team
from scaffe.context import TEST
from scaffe.errors import ScaffeError
from scaffe.files.outputs import check_distinct, check_replaced, net_files
from scaffe.monitor.log import log
from scaffe.parallel.world import World
from scaffe.proto.kinds import ARRAY, HDF5
from scaffe.tools.features import FORMATS, extract
from scaffe.training.settings import Settings

RANK = 16
OWN = {"hdf5": [HDF5], "npy": [ARRAY]}  # kinds of files


def add(top: Parser) -> None:
    """Add `extract-features`."""
    text = "Write what blobs hold for a net's test data, divided over all ranks and instances."
    command = add_command(top, "extract-features", _extract, text)
    command.add_argument("weights", metavar="WEIGHTS", help=".caffemodel files, A,B")
    command.add_argument("model", metavar="NET", help="net prototxt with a data layer, run in the TEST phase")
    command.add_argument("blobs", metavar="BLOB[,BLOB]")
    command.add_argument("out", metavar="OUT[,OUT]", help="a database or file for each blob")
    command.add_argument("iterations", metavar="BATCHES", type=int, help="batches to run")
    command.add_argument("format", metavar="FORMAT", nargs="?", choices=tuple(FORMATS), help="the same as --db")
    command.add_argument("mode", metavar="CPU|GPU", nargs="?", choices=("CPU", "GPU"), help="as in Caffe; see --device")
    command.add_argument("device_id", metavar="DEVICE_ID", nargs="?", type=_device_id, help="of GPU; the same as --gpu")
    command.flag("db", choices=tuple(FORMATS), help="lmdb (the default) or leveldb of Datums, hdf5 or npy")
    add_net_flags(command)
    add_instances(command)


def _extract(arguments: argparse.Namespace) -> int:
    _take_mode(arguments)
    return on_devices(lambda world, settings: _write(world, arguments, settings), arguments)


def _device_id(text: str) -> str:
    """Return a GPU's number; Caffe's help makes people write DEVICE_ID=1."""
    number = text.removeprefix("DEVICE_ID=")
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a GPU's number such as 0, got '{text}'")
    return number


def _take_mode(a: argparse.Namespace) -> None:
    """Set --device and --gpu to Caffe's words CPU or GPU and DEVICE_ID; as in Caffe, a number for CPU has no effect."""
    if a.mode == "CPU":
        if a.device == "cuda" or a.gpu is not None:
            raise ScaffeError("CPU and a GPU's flag say two things; give one of them")
        a.device = "cpu"
    if a.mode == "GPU":
        if a.device == "cpu" or (a.device_id and a.gpu not in (None, a.device_id)):
            raise ScaffeError("GPU and --device or --gpu say two things; give one of them")
        a.device, a.gpu = "cuda", a.device_id or a.gpu


def _write(world: World, a: argparse.Namespace, settings: Settings) -> int:
    outputs, db = world.together(lambda: _outputs(a))
    world.on_root(lambda: _check_outputs(a, outputs, db))
    team = open_team(world, settings.instances)
    nets = open_nets(world, team, a, settings.compute, TEST, a.iterations)
    log.info("Extracting features of %d batches", a.iterations)
    for name, count in extract(nets, outputs, a.iterations, world, team, db).items():
        log.info("Extracted features of %d query images for feature blob %s", count, name)
    log.info("Successfully extracted the features!")
    close(team, nets)
    return 0


def _check_outputs(a: argparse.Namespace, outputs: dict[str, str], db: str) -> None:
    """Raise ScaffeError if a file to write would replace one to read, or another tool's."""
    check_distinct(**outputs)
    for blob, path in outputs.items():
        check_replaced(blob, path, [*a.weights.split(","), *net_files([a.model])], OWN.get(db, ()))


def _outputs(a: argparse.Namespace) -> tuple[dict[str, str], str]:
    """Return where each blob is to be written and in which format."""
    names, paths = a.blobs.split(","), a.out.split(",")
    if len(names) != len(paths):
        raise ScaffeError(f"{len(names)} blob(s) {a.blobs} for {len(paths)} output(s) {a.out}: name one for each")
    for what, given in (("blob", names), ("output", paths)):
        if len(set(given)) < len(given) or "" in given:
            raise ScaffeError(f"each {what} must be named once, got {','.join(given)}")
    if a.db and a.format and a.db != a.format:
        raise ScaffeError(f"--db {a.db} contradicts the format {a.format}: give one")
    return dict(zip(names, paths, strict=True)), a.db or a.format or "lmdb"
