"""The mean image of a database, its records divided over all ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from readers import open_database, write_mean
from readers.bar import bar
from readers.files import check_folder_of
from readers.image_mean import block_count, block_sums, mean_of
from scaffe.parallel.world import World


def compute_image_mean(
    db: str | os.PathLike[str], out: str | os.PathLike[str] | None, world: World, progress: bool = True
) -> np.ndarray | None:
    """Return the mean image of a database, and write it to the .binaryproto file `out` unless that is None. Collective.

    Other ranks than the root return None. The root adds the sums of blocks of records in order, so that any number of
    ranks gives the same bits. Raise ReaderError as readers.compute_image_mean does, on all ranks.
    """
    world.together(lambda: check_folder_of(out) if world.is_root and out is not None else None)
    source = world.together(lambda: open_database(db))
    blocks = block_count(source)
    sums = world.together(lambda: block_sums(source, range(world.rank, blocks, world.size), world.threads))

    def gathered() -> Iterator[np.ndarray]:
        for _ in bar(range(0, blocks, world.size), db, "round", progress and world.is_root, -(-blocks // world.size)):
            mine = world.together(lambda: next(sums, None))
            yield from (one for one in world.comm.gather(mine, world.root) or [] if one is not None)

    mean = mean_of(gathered(), len(source))
    world.together(lambda: write_mean(out, mean) if mean is not None and out is not None else None)
    return mean
