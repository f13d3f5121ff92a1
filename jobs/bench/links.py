"""Print what is measured of the links between ranks 0 and 1, as JSON, by the names of a described cluster's numbers.

    mpirun -n P python jobs/bench/links.py CHUNK ROW

Messages of CHUNK bytes, and shorter ones, go in a row of ROW bytes. A link whose buffer lets the first bytes pass
faster is as fast as it is for so many.
"""

from __future__ import annotations

import argparse
import json

from rank import take_precedence
from simulated import links

from scaffe.parallel.world import open_world


def main() -> None:
    """Measure; print on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chunk", type=int, help="bytes of a message")
    parser.add_argument("row", type=int, help="bytes of messages in a row")
    a = parser.parse_args()
    take_precedence()
    world = open_world()
    found = links(world, a.chunk, a.row)
    if world.is_root:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
