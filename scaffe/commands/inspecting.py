"""scaffe inspect-db and compute-image-mean: what is in a database."""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

import readers
from readers.contact_sheet import draw_contact_sheet
from readers.survey import survey
from readers.threads import check_threads
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone, on_all_ranks
from scaffe.monitor.log import log, one_line
from scaffe.parallel.image_mean import compute_image_mean
from scaffe.parallel.world import World, launcher_size


def add(commands) -> None:
    """Add the two."""
    _add_inspect(commands)
    _add_mean(commands)


def _add_inspect(commands) -> None:
    text = "Decode every record of a database and tell what is in it; exit with 2 if a record is bad."
    command = add_command(commands, "inspect-db", lambda a: alone(partial(_inspect, a)), text)
    command.add_argument("db", metavar="DB", help="LMDB, LevelDB, or a folder or glob of LMDBs that are stripes of one")
    command.flag("plot", metavar="OUT.png", help="draw images from all over the database, with their labels")
    command.flag("images", type=int, default=60, metavar="N", help="that --plot draws")
    command.flag("rgb", action="store_true", help="draw channels as R G B, such as CIFAR-10's, instead of B G R")
    command.flag("threads", type=int, default=0, metavar="N", help="that decode; 0: one for each core")


def _inspect(a: argparse.Namespace) -> None:
    if a.images < 1:
        raise readers.ReaderError(f"--images must be 1 or more, got {a.images}")
    check_threads("--threads", a.threads)
    with readers.open_database(a.db) as source:
        if a.plot:
            draw_contact_sheet(source, a.plot, a.images, a.rgb)
        found = survey(source, a.threads, progress=True)
    for line in found.lines():
        print(one_line(line))
    if found.bad:
        raise readers.RecordError(f"{len(found.bad):,} of {found.records:,} records are bad; the first: {found.bad[0]}")


def _add_mean(commands) -> None:
    text = "Write the mean image of a database, its records divided over all ranks."
    command = add_command(commands, "compute-image-mean", _mean, text)
    command.add_argument("db", metavar="DB", help="LMDB, LevelDB, or a folder or glob of LMDBs that are stripes of one")
    command.add_argument("out", metavar="OUT.binaryproto", nargs="?", help="without it the means are logged alone")
    command.flag("backend", choices=("lmdb", "leveldb"), help="as in Caffe; here it is seen from the files")
    command.add_caffes()


def _mean(a: argparse.Namespace) -> int:
    if launcher_size() == 1:  # needs no MPI
        return alone(lambda: _tell(readers.compute_image_mean(a.db, a.out)))
    return on_all_ranks(partial(_mean_of_ranks, a))


def _mean_of_ranks(a: argparse.Namespace, world: World) -> int:
    mean = compute_image_mean(a.db, a.out, world)
    if mean is not None:
        _tell(mean)
    return 0


def _tell(mean: np.ndarray) -> None:
    """Log what Caffe's tool logs: the mean of each channel."""
    log.info("Number of channels: %d", len(mean))
    for channel, value in enumerate(mean.mean((1, 2), dtype=np.float64)):
        log.info("mean_value channel [%d]: %g", channel, value)
