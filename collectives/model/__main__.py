"""`python -m collectives.model`; see `collectives.model`."""

import sys

from collectives.command import run
from collectives.model import main

if __name__ == "__main__":
    sys.exit(run(main))
