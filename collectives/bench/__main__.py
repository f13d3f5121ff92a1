"""`python -m collectives.bench`; see `collectives.bench`."""

import sys

from collectives.bench import main
from collectives.command import run

if __name__ == "__main__":
    sys.exit(run(main))
