"""scaffe device-query."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from scaffe.commands.gflags import CAFFE, Parser
from scaffe.commands.parser import add_command
from scaffe.compute import DEFAULT
from scaffe.engines import create
from scaffe.errors import LaunchError
from scaffe.parallel.hosts import describe
from scaffe.parallel.mpi_library import mpi_lines
from scaffe.parallel.world import launcher_rank, open_world
from scaffe.tools.hardware import gpu_lines, library_lines, processor_lines

RANK = 34


def add(top: Parser) -> None:
    """Add `device-query`."""
    text = (
        "Print what there is to compute with: cores, memory, libraries, MPI, GPUs; under mpirun, which rank has what."
    )
    command = add_command(top, "device-query", _query, text)
    command.flag("gpu", metavar="IDS", help="GPU ids or 'all', as Caffe's")
    command.add_caffes(CAFFE)


def _query(a: argparse.Namespace) -> int:
    """Print the first rank's lines; the others have opened MPI with it."""
    mpi = list(_mpi())
    if launcher_rank() == 0:
        for line in (*processor_lines(), *library_lines(create(DEFAULT)), *mpi, *gpu_lines(a.gpu)):
            print(line)
    return 0


def _mpi() -> Iterator[str]:
    """Iterate over lines about MPI and its ranks, or a line that says why there is none."""
    try:
        world = open_world()
    except LaunchError as error:
        yield f"MPI: none: {error}"
        return
    yield from mpi_lines()
    yield from (f"Ranks on {line}" for line in describe(world))
