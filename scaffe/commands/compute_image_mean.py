"""scaffe compute-image-mean."""

from __future__ import annotations

import argparse

import numpy as np

import readers
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import agree_on_flags, alone, on_all_ranks
from scaffe.files.outputs import check_replaced
from scaffe.monitor.log import log
from scaffe.parallel.image_mean import compute_image_mean
from scaffe.parallel.world import World, launcher_size

RANK = 25


def add(top: Parser) -> None:
    """Add `compute-image-mean`."""
    text = "Write the mean image of a database, its records divided over all ranks."
    command = add_command(top, "compute-image-mean", _compute, text)
    command.add_argument("db", metavar="DB", help="LMDB, LevelDB, or a folder or glob of LMDBs that are stripes of one")
    command.add_argument("out", metavar="OUT.binaryproto", nargs="?", help="without it the means are only logged")
    command.flag("backend", choices=("lmdb", "leveldb"), help="as in Caffe; the files themselves decide")
    command.add_caffes()


def _compute(a: argparse.Namespace) -> int:
    if launcher_size() == 1:  # needs no MPI
        return alone(lambda: _compute_alone(a))
    return on_all_ranks(lambda world: _compute_over(world, a))


def _compute_alone(a: argparse.Namespace) -> None:
    _check_output(a)
    _log(readers.compute_image_mean(a.db, a.out))


def _check_output(a: argparse.Namespace) -> None:
    if a.out is not None:
        check_replaced("mean file", a.out, [a.db])


def _compute_over(world: World, a: argparse.Namespace) -> int:
    agree_on_flags(world, a)
    world.on_root(lambda: _check_output(a))
    mean = compute_image_mean(a.db, a.out, world)
    if mean is not None:
        _log(mean)
    return 0


def _log(mean: np.ndarray) -> None:
    """Log the mean of each channel, as Caffe's tool does."""
    log.info("Number of channels: %d", len(mean))
    for channel, value in enumerate(mean.mean((1, 2), dtype=np.float64)):
        log.info("mean_value channel [%d]: %g", channel, value)
